"""How launches and workers end, where they are, and what is left."""

import json
import signal
from collections.abc import Iterator

from spawnlaunch.workers.environment import STACK_SIGNAL, WITNESS
from tests.machine.kernel import MOST_CALLS
from tests.machine.play import Played
from tests.machine.properties import facts
from tests.machine.scripts import COUNT, Ignore

ENDS_S = 1.0  # for the kernel to end who is told to die with the guard
DIES_S = 0.1  # from a signal until a process that has just been forked dies of it
OF_OURS = ("internal error", "Traceback (most recent call last)", "fault of spawnlaunch")
NOT_SO = ("could not kill", "did not die of SIGKILL", "cannot be reaped")  # of nobody here


def everything_ends(played: Played) -> Iterator[facts.Verdict]:
    if played.kernel.spins:
        yield f"there were more than {MOST_CALLS} calls"
        return
    for host in played.hosts:
        if not host.node.is_down:
            is_running = any(p.code is None for p in host.launchers)
            yield is_running and f"the launch on {host.node.name} has not ended"


def nobody_is_left(played: Played) -> Iterator[facts.Verdict]:
    """No process of a launch goes on for longer than the launch does."""
    if played.kernel.spins:
        return
    slow_s = ENDS_S + played.scenario.core_s + played.scenario.free_s + facts.lost_s(played)
    for host in played.hosts:
        if any(p.code is None for p in host.launchers) or host.node.is_down:
            continue
        above = [p for p in (*host.launchers, *host.guards) if p.code is not None]
        end = max((p.ended for p in above), default=played.kernel.now)
        for process in facts.not_admitted(played, host):
            is_left = process.is_alive or process.ended > end + slow_s
            yield is_left and f"{process} ({' '.join(process.command)}) is left"


def no_fault_of_ours(played: Played) -> Iterator[facts.Verdict]:
    yield from played.kernel.tracebacks
    for host in played.hosts:
        yield from (words in host.err.text and words for words in (*OF_OURS, *NOT_SO))
        yield any(p.code == 70 for p in host.launchers) and "status 70"


def a_worker_dies_of_it(played: Played) -> Iterator[facts.Verdict]:
    """Who does nothing about SIGTERM dies of it, also where it was no worker yet."""
    scripts = played.scenario.scripts
    for host in (host for host in played.hosts if not host.node.is_down):
        for sent in facts.sent_by_launch(played, host):
            worker = sent.to
            if sent.signum != signal.SIGTERM or worker not in host.workers:
                continue
            script = scripts[int(worker.environ["RANK"]) % len(scripts)]
            if script.told is None and Ignore(signal.SIGTERM) not in script.steps:
                lived_s = worker.could_run_s(sent.when, worker.dying or played.kernel.now)
                is_deaf = lived_s > DIES_S * facts.slowness(played)
                yield is_deaf and f"{worker} lived for {lived_s:.3f} s after it was told to end"


def the_guard_ends_by_itself(played: Played) -> Iterator[facts.Verdict]:
    """No launcher kills its guard: that says how the workers ended, and shows what they wrote.

    But for one that is held, so that it cannot.
    """
    for host in (each for each in played.hosts if not any(p.was_held for p in each.guards)):
        killed = [
            sent.sender for sent in played.kernel.signals
            if sent.signum == signal.SIGKILL and sent.to in host.guards[:1]
        ]  # fmt: skip
        yield any(p in host.launchers for p in killed) and "a launcher has killed its guard"


def a_place_of_its_own(played: Played) -> Iterator[facts.Verdict]:
    """A worker alone on its node shares the launcher's terminal; each of several has a session.

    It is told of a signal that asks for its stacks where somebody may ask, and who it is itself: by
    that it knows that it is the one to answer, and none of those which it starts.
    """
    may_ask = played.scenario.flag("--hang-timeout") is not None
    for process in (p for host in played.hosts for p in host.workers):
        is_told = STACK_SIGNAL in process.environ
        yield is_told != may_ask and f"{process} is told of a signal: {is_told}"
        told = process.environ.get(WITNESS)
        yield told != str(process.pid) and f"{process} is told that it is {told}"
    if played.scenario.is_refused("setsid"):
        return
    for host in played.hosts:
        for process in host.workers:
            if process.environ["LOCAL_WORLD_SIZE"] != "1":
                yield process.session != process.pid and f"{process} has no session of its own"
            elif not any(p.code == -signal.SIGKILL for p in host.launchers):
                groups = {p.group for p in host.launchers}
                yield process.group not in groups and f"{process} is not with its launcher"


def the_result_is_written(played: Played) -> Iterator[facts.Verdict]:
    """The file of --result has the status, and each rank with its own."""
    scenario, host = played.scenario, played.hosts[0]
    path = scenario.flag("--result")
    if path is None or scenario.refused or facts.is_any_killed(played) or not host.launchers:
        return
    if scenario.disk is not None:
        return
    if host.node.is_down or (host.launcher.code or 0) < 0 or len(host.launchers) > 1:
        return
    if not host.workers and host.launcher.code == facts.WRONG_USE:
        return
    try:
        text = host.node.files.find(path).content
    except OSError:
        yield f"there is no {path}"
        return
    record = json.loads(text)
    status = record["status"]
    right = {facts.code(played, host), host.launcher.code}
    yield status not in right and f"status {status} is written of {host.launcher.code}"
    if facts.who_is_apart(played) or not host.workers or facts.whats(played) & {"freeze", "digits"}:
        return
    if any(p.code for p in host.guards[1:]):
        return  # a fork of the guard has died before it became a worker
    last = [*facts.attempts(played)][-1]
    codes = {int(p.environ["RANK"]): facts.status(p.code) for p in last}
    codes = dict.fromkeys(range(int(last[0].environ["WORLD_SIZE"]))) | codes
    written = {each["rank"]: each["status"] for each in record["ranks"]}
    is_so = all(code in (written.get(rank, -1), None) for rank, code in codes.items())
    is_wrong = not is_so or written.keys() != codes.keys()
    yield is_wrong and f"of ranks is written {written}, and they ended with {codes}"


def it_ends_in_time(played: Played) -> Iterator[facts.Verdict]:
    """Once a launch is to end it does, within the grace, and what its parts wait for each other."""
    scenario = played.scenario
    if not scenario.is_alone and (scenario.restarts or not facts.first_start(played)):
        return  # others may come, or come back
    lost_s = sum(f.for_s for _, f, _ in played.happened) + sum(scenario.pause or (0, 0))
    slow_s = scenario.core_s + scenario.free_s
    most_s = 2 * scenario.grace_s + slow_s + lost_s + facts.MARGIN_S
    counts = [int(p.environ[COUNT]) for host in played.hosts for p in host.workers]
    failures = [
        p.ended for host in played.hosts for p in facts.first_failures(played, host)[:1]
        if int(p.environ[COUNT]) == max(counts)
    ]  # fmt: skip
    for host in played.hosts:
        if not host.launchers or host.launcher.code is None:
            continue
        if not (scenario.is_alone or host.workers) or len(host.launchers) > 1:
            continue  # it may have found nobody, or come back as all had ended
        told = [
            when
            for when, f, to in played.happened
            if f.number in facts.ENDS and to is host.launcher
        ]
        causes = [*told, *failures]
        if not causes:
            continue
        late_s = host.launcher.ended - min(causes)
        yield late_s > most_s and f"{host.node.name} ended {late_s:.1f} s after it was to"


def memory_is_named(played: Played) -> Iterator[facts.Verdict]:
    """That a worker was killed as memory ran out is said of it, and of no other launch."""
    for host in played.hosts:
        is_said = "out of memory" in host.err.text
        if not host.node.oom_kills:
            yield is_said and "memory has not run out"
            continue
        killed = {to for _, f, to in played.happened if f.what == "memory" and to in host.workers}
        named = facts.NAMED.search(host.err.text)
        if named and any(
            p.environ["RANK"] == named[1] for p in facts.last_attempt(host) if p in killed
        ):
            yield not is_said and f"rank {named[1]} was killed as memory ran out"
