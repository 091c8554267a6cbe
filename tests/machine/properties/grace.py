"""How much time who is told to end has."""

import re
import signal
from collections.abc import Iterator

from spawnlaunch.base import say
from spawnlaunch.cli.flags import FAILURE_GRACE_S
from tests.machine.play import Host, Played
from tests.machine.process import Process, Sent
from tests.machine.properties import facts

GRACE_LATE_S = 0.9  # after the grace, until it is seen that it is over
OVERDUE = re.compile(r"still ran after (\S+) s: killed")


def _told_and_killed(played: Played, host: Host) -> Iterator[tuple[Process, Sent, Sent]]:
    """Workers that were told to end, and killed later."""
    for worker in host.workers:
        sent = [each for each in facts.sent_by_launch(played, host) if each.to is worker]
        told = next((each for each in sent if each.signum == signal.SIGTERM), None)
        killed = next((each for each in sent if each.signum == signal.SIGKILL), None)
        if told and killed:
            yield worker, told, killed


def the_whole_grace(played: Played) -> Iterator[facts.Verdict]:
    """Who was told to end has its whole grace of time in which the launch could run."""
    again = sum(f.number == signal.SIGINT for _, f, _ in played.happened) > 1
    is_killed = any(n == signal.SIGKILL for n, _ in facts.signalled(played))
    if again or is_killed or played.scenario.is_needed_refused:
        return
    for host in played.hosts:
        if all(p.code != -signal.SIGKILL for p in host.launchers):  # "return" kills it
            yield from _graces(played, host)


def _graces(played: Played, host: Host) -> Iterator[facts.Verdict]:
    scenario, stops = played.scenario, facts.stops(played)
    grace_s = scenario.grace_s
    if not scenario.is_alone:  # a worker may have failed on another node
        grace_s = min(grace_s, FAILURE_GRACE_S)
    elif facts.first_failures(played, host) or any(p.code for p in host.guards[1:]):
        # Or a fork of the guard has died before it became a worker.
        grace_s = min(grace_s, float(scenario.flag("--failure-grace") or grace_s))
    for worker, told, killed in _told_and_killed(played, host):
        had_s = told.sender.could_run_s(told.when, killed.when)
        is_short = had_s < grace_s * 0.99 - facts.UNSEEN_S * stops
        yield is_short and f"{worker} had {had_s:.3f} s of {grace_s:g}"
        is_stopped = grace_s > 0 and not worker.could_run_s(told.when, killed.when)
        yield (is_stopped and f"{worker} could not run after it was told to end")


def the_grace_is_said(played: Played) -> Iterator[facts.Verdict]:
    """Of whom it is said how long it still ran after it was told to end had that time."""
    if any(f.number == signal.SIGINT for _, f, _ in played.happened):
        return  # a worker has got it before it was told
    for host in played.hosts:
        told: dict[int, float] = {}
        ran = []
        for sent in facts.sent_by_launch(played, host):
            if sent.signum == signal.SIGTERM:  # also of one that is no worker yet
                told.setdefault(id(sent.to), sent.when)
            ran.append(sent.when - told.get(id(sent.to), sent.when))
        for said in OVERDUE.finditer(host.err.text):
            most_s = max(ran, default=0.0) or float(said[1])  # 0: they had ended, and none was told
            yield most_s < float(said[1]) * 0.99 and f"{said[0]}, after {most_s:.3f} s"


def the_grace_of_what_is_left(played: Played) -> Iterator[facts.Verdict]:
    """What workers that have ended well leave has the grace in which it could run."""
    is_to_end = facts.is_told(played) or played.scenario.flag("--timeout") is not None
    for host in played.hosts:
        is_killed = any(p.code == -signal.SIGKILL for p in host.launchers)
        if host.launchers and host.workers and not is_killed:
            is_well = host.launcher.code == 0 and not is_to_end
            yield from _graces_of_what_is_left(played, host, is_well)


def _graces_of_what_is_left(played: Played, host: Host, is_well: bool) -> Iterator[facts.Verdict]:
    """It is told to end, and killed if it does not; at once only where the launch is to end."""
    grace_s = played.scenario.grace_s
    ended = max(p.ended for p in host.workers)
    workers, stops = {id(p) for p in host.workers}, facts.stops(played)
    told = set()
    for sent in facts.sent_by_launch(played, host):
        is_left = sent.to.player is not None and id(sent.to) not in workers
        if not is_left or sent.when < ended:
            continue
        if sent.signum == signal.SIGTERM:
            told.add(id(sent.to))
        elif not is_well:
            continue
        else:
            yield id(sent.to) not in told and f"{sent.to} was killed, and not told to end before"
        had_s = sent.to.could_run_s(ended, sent.when)
        is_short = had_s < grace_s * 0.99 - facts.UNSEEN_S * stops
        yield is_short and f"{sent.to} had {had_s:.3f} s of {grace_s:g}"


def no_longer_grace(played: Played) -> Iterator[facts.Verdict]:
    """Who was told to end, and does not, is killed as soon as the grace is over."""
    if played.scenario.is_needed_refused:
        return
    most_s = max(played.scenario.grace_s, float(played.scenario.flag("--failure-grace") or 0))
    if played.scenario.pause:  # who reads is waited for, with what is said of the end
        most_s += say.PATIENCE_S
    for host in played.hosts:
        for worker, told, killed in _told_and_killed(played, host):
            if killed.sender is not told.sender:
                continue
            if any(f.what == "stop" and to in host.launchers for _, f, to in played.happened):
                continue  # every grace stands while the launch is stopped
            had_s = told.sender.could_run_s(told.when, killed.when)
            is_long = had_s > most_s + GRACE_LATE_S * facts.slowness(played)
            yield is_long and f"{worker} had {had_s:.3f} s of {most_s:g}"
