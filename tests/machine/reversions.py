"""Repairs that are taken back, one at a time: which seed sees that they are gone?

In its place stands what was there before, or what would be without (tests/support/edits.py).
"""

from typing import NamedTuple

from tests.machine.generating import generated
from tests.machine.play import play
from tests.machine.properties import broken
from tests.support import edits
from tests.support.edits import Edit

MOST_SEEDS = 20_000
ONE, SEVERAL = 1, 6  # nodes


class Reversion(NamedTuple):
    words: str  # what was wrong
    needs: str  # what has to happen in a scenario that can show it; others are not played
    nodes: int
    edits: tuple[Edit, ...]


def _one(words: str, needs: str, *edit: str) -> Reversion:
    return Reversion(words, needs, ONE, _edits(edit))


def _several(words: str, needs: str, *edit: str) -> Reversion:
    return Reversion(words, needs, SEVERAL, _edits(edit))


def _edits(edit: tuple[str, ...]) -> tuple[Edit, ...]:
    return tuple(Edit(*edit[i : i + 3]) for i in range(0, len(edit), 3))


LATER = "machine.running_s()", "machine.monotonic()"

REVERSIONS = (
    # Time in which we could not run does not count
    _one("all deadlines run while the launch stands", "freeze",
         "base.events:Loop._count", "machine.exclude(self._read_at_s - before_s - counts_s)",
         "pass"),
    _one("a gap counts that is neither in a wait nor in a call", "freeze",
         "base.events:Loop.turn", "self._count()", "self._read_at_s = machine.running_s()",
         "base.events:Loop.turn", "machine.running_s() > self._read_at_s + LATE_S", "False"),
    _one("the grace runs while all stands", "freeze",
         "base.events:Loop.alarm",
         "machine.monotonic if always else machine.running_s", "machine.monotonic"),
    _one("--hang-timeout counts time in which nobody could write", "freeze",
         "output:Output.silent_s", *LATER, "hang.silence:HangHelp._silent_s", *LATER),
    _one("a reader's patience is over with time in which it could not read", "freeze",
         "output:Output.await_readers", *LATER),
    _one("what workers leave has its grace while it is frozen", "freeze",
         "run.tree:Tree._goes_on", *LATER),
    _one("what does not die at once is left, though it could not run", "free freeze",
         "run.tree:Tree.end", *LATER),
    _one("our own words are dropped, as their reader was frozen", "freeze",
         "base.say:write", "machine.exclude(passed_s)", "pass"),
    _one("a worker that is stopped when it is told to end cannot use its grace", "stop",
         "run.processes:Processes.send",
         "signum == signal.SIGTERM and proc.is_stopped(running.pid)", "False"),
    # Whoever will not come says so, and is believed
    _several("a launcher that cannot take part does not tell the others", "unable",
             "run.unable:tell", "request and resolution and resolution.gathering", "False"),
    _several("a launcher that was to have the hub, and cannot, does not listen", "unable",
             "run.telling:tell", "gathering.is_hub is not False", "False"),
    _several("a launcher that the hub refuses, or that cannot take part, is waited for", "unable",
             "gang.hub:Hub._count_out", "is_final and self.phase != phases.RUNNING", "False"),
    _several("a launcher that goes before the first start is waited for", "signal",
             "gang.hub:Hub._lose",
             "is_certain and (not (hello.again or self._may_return() or node.leaving))", "False"),
    _several("a launcher that a signal ends as it seeks the hub does not say so", "signal",
             "gang.member:Member._told_early",
             "self._left, self.hello = (self.now, self.hello._replace(leaving=self.leaving))",
             "self._left = self.now"),
    _several("a cut before the first start ends a launcher", "cut",
             "gang.member:Member._be_alone", "self.hello.epoch and (not self._rules.return_s)",
             "not self._rules.return_s or not self.hello.epoch"),
    _one("output that nobody reads is lost with status 0", "",
         "output:Output._give_up", "self._has_failed |= not was_read", "pass"),
    _one("another user's reader that pauses holds the guard up", "foreign",
         "output.pipes:_without_waiting",
         "machine.write_now(fd, bytes(data[:select.PIPE_BUF]))", "machine.write(fd, data)"),
    # Open files
    _one("the guard's limit of open files is as it was", "few-files",
         "output:Output.begin",
         "self.make_room(workers * MOST_OF_A_WORKER + OF_THE_GUARD)", "pass"),
    _one("workers get the guard's limit of open files", "few-files",
         "output:Output.use_ends", "machine.setrlimit(self._limits)", "pass"),
    _several("the hub's limit of open files is as it was", "few-files",
             "run.ganged:Gang._room",
             "self._supervisor.output.make_room(own + most_used)", "pass"),
    _several("a hub without a descriptor tries again at once", "accept4",
             "gang.server:Server._pause", "self._listener and (not self._has_evicted())", "False"),
    # Strangers, and name servers
    _several("a host name of thousands of digits ends the hub", "digits",
             "gang.roster:_digits", "(0, len(number), number)", "(0, int(number or 0), number)",
             "gang.messages:_name", "len(read) > MOST_NAME", "False"),
    _several("silent connections keep nodes from meeting", "silent",
             "gang.server:Server._take", "not self._has_evicted()", "True"),
    _several("a mute name server holds a signal up, at the hub", "mute",
             "run.ganged:Gang._found",
             "lookup.numeric(endpoint.host, endpoint.port) or not lookup.HAS_CHILDREN", "True"),
    _several("a mute name server holds a signal up, elsewhere", "mute",
             "gang.link:Link.connect", "not found and (not lookup.HAS_CHILDREN)", "not found"),
    _several("a slow name server is asked once more for each port", "mute",
             "gang.link:Link._fail", "self._connect()", "self.connect()"),
    # Lost launchers that come back
    _several("a lost launcher is not waited for", "return",
             "gang.phases:Phases._can_go_on", "self._is_enough() or settings.return_s > 0",
             "self._is_enough()"),
    _several("a lost hub is not waited for", "return",
             "gang.member:Member._be_alone", "self.hello.epoch and (not self._rules.return_s)",
             "self.hello.epoch"),
    # The failure that was first
    _one("a process that dumps its core has not failed yet", "core",
         "run.processes:Processes.send", "proc.is_dying(pid)", "False"),
    _one("a crash does not go before an exit", "",
         "outcome.failures:Failure.order",
         "code in CRASHES or (code == -SIGKILL and self.cause.oom)",
         "code == -SIGKILL and self.cause.oom"),
    _several("the way of a failure's news counts as its age", "far",
             "gang.member:Member.worker_failed", "failed.age_s + way_s", "failed.age_s"),
    _several("a crash far away was not earlier than is known", "far",
             "gang.member:Member.worker_failed", "early_s += way_s", "pass"),
    # A refused call costs what it gives
    _one("memfd_create refused ends the launch", "memfd_create",
         "output:Output.publish", "OSError", "KeyError"),
    _one("pidfd_send_signal refused leaves processes", "pidfd_send_signal",
         "run.tree:send", "signals.send(process.pid, signum)", "pass",
         "run.tree:send", "is_same and (fd is None or not machine.signal_pidfd(fd, signum))",
         "is_same and fd is not None and machine.signal_pidfd(fd, signum)"),
    _one("setsid refused ends the launch", "setsid", "base.signals:detach", "OSError", "KeyError"),
    _one("waitid refused: how a worker has ended", "waitid",
         "run.processes:Processes._has_ended", "OSError", "KeyError"),
    _one("waitid refused: whether there are children", "waitid",
         "node.proc:has_children", "OSError", "KeyError"),
    _one("waitid refused: who was stopped", "waitid",
         "node.proc:is_stopped", "OSError", "KeyError"),
    _one("epoll refused ends the launch", "epoll_create",
         "base.events:Loop.__init__", "OSError", "KeyError"),
    _one("signalfd refused: no signal is heard", "signalfd4",
         "base.events:Ear.__init__", "self._blocked is None", "False"),
    # Heard by whom it is for
    _one("what another thread takes is not heard", "thread",
         "base.events:Ear.read", "self._pipe.read()", "()"),
    _one("a guard that cannot hear is waited for", "hold",
         "run.front:_Watch._check_that_guard_reads", "machine.size_of(self._channel)", "0"),
)  # fmt: skip


def first_seed(reversion: Reversion, most: int = MOST_SEEDS) -> tuple[int, str] | None:
    """The first seed that sees it, and what does not hold there; None: none of so many does."""
    codes = edits.codes(reversion.edits)
    for seed in range(most):
        scenario = generated(seed, None if reversion.nodes == ONE else 2 + seed % (SEVERAL - 1))
        if not scenario.has(reversion.needs):
            continue
        with edits.instead(codes):
            found = broken(play(scenario))
        if found and not broken(play(scenario)):
            return seed, found[0]
    return None
