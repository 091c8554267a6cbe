"""Where the workers are: the stacks of each of their processes, from the best source there is.

What is held from outside is named as that, before anything else (rollcall/held.py), and is not
asked itself where nothing of it runs.

1. The worker itself, once it has imported torch: a thread in it answers (spawnlaunch/witness), with
   what torch's flight recorder has. All workers are asked at once.
2. The process itself, where it catches the signal SPAWNLAUNCH_STACK_SIGNAL: faulthandler writes the
   stacks of all its threads to its stderr, even while one of them keeps the GIL. A worker registers
   that at its start where its Python finds this package, and a script may, in two lines:

       import faulthandler, os
       faulthandler.register(int(os.environ["SPAWNLAUNCH_STACK_SIGNAL"]))

3. py-spy, where it is installed and may look.
4. The kernel, which knows no Python, but what each thread waits for.

From 2 on one process after the other is asked. All of it happens in turns of the loop: the launcher
goes on watching meanwhile. Then the roll is called: a line for each group of processes that are in
the same place. The whole stacks are in files, one per rank: in its directory of --log-dir, or else
in one that is made for them beside the scratch directory and stays. The records name the first
collective on which ranks disagree. Of a worker that has not answered, NCCL's recorder is asked
through its own pipe, if the user has switched it on.
"""

from __future__ import annotations

import os
import time
from collections import deque
from functools import partial

from spawnlaunch import machine, reading, records
from spawnlaunch.node import proc
from spawnlaunch.rollcall import asked, flight, frames, groups, held
from spawnlaunch.run import launches, signals, tree
from spawnlaunch.run.hang import sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spawnlaunch.run import events
    from spawnlaunch.run.journal import Journal
    from spawnlaunch.run.output import Output

MOST_READ = 1 << 24  # bytes of a log, in which the stacks of a process stand
ANSWER_S = 2.0  # for a process to tell its stacks, which takes it milliseconds
QUIET_S = 0.1  # without another word: it has told all
ALL_S = 30.0  # for all processes together, and from then on the kernel is asked, which is quick
RECORD_S = 10.0  # for NCCL to write what it has recorded; it looks for a question every second
FILE = "stacks.log"
INSTEAD = "name another directory with --log-dir; the stacks stand here:"
BY_ITSELF = "told by itself"


class Target(records.NamedTuple):
    """A process to be asked."""

    worker: launches.Worker
    process: proc.Process
    is_worker: bool  # and no child of one
    is_mute: bool  # it is held from outside, and cannot answer

    @property
    def name(self) -> str:
        """As a person looks for it."""
        below = "" if self.is_worker else f", below {self.process.parent}"
        return f"{self.worker.name} (pid {self.process.pid}{below})"


class RollCall:
    """Asks processes for their stacks, and calls the roll; calls `done` at the end."""

    def __init__(
        self,
        loop: events.Loop,
        output: Output,
        scratch: str,
        done: Callable[[], None],
        journal: Journal | None,
    ) -> None:
        self._loop = loop
        self._output = output
        self._scratch = scratch
        self._done = done
        self.journal = journal
        self._witnesses: dict[int, tuple[Target, asked.Question]] = {}  # by the fds of questions
        self._targets: deque[Target] = deque()
        self.is_busy = False
        self._end_at = 0.0  # by machine.running_s
        self._asking: Asking | None = None
        self._spying: sources.Spying | None = None
        self._answers: list[groups.Answer] = []
        self._places: set[str] = set()  # directories of the files
        self._asked: list[flight.Asked] = []
        self._deaf: list[int] = []  # ranks that cannot be asked for records
        self._records: dict[int, flight.Record] = {}
        # When the roll was called last
        self.roll: Sequence[groups.Group] = ()
        self.recorded: Mapping[int, flight.Record] = {}

    def tell(self, workers: Iterable[tuple[launches.Worker, int]]) -> None:
        """Ask these workers, each with its pid, and what they have started."""
        if self.is_busy:
            return
        if not proc.is_proc_ours():
            self._output.say(["no stacks can be shown: /proc does not show our PID namespace"])
            workers = ()
        for worker, pid in workers:
            for process in proc.below(filter(None, [proc.look(pid)])):
                if process.dead:
                    continue
                found = held.look(process.pid, held.status(process.pid))
                target = Target(worker, process, process.pid == pid, bool(found and found.is_mute))
                if found:
                    self._output.say([f"{target.name} is {found.words}"])
                if not self._ask_witness(target):
                    self._targets.append(target)
        self.is_busy = True
        self._end_at = machine.running_s() + ALL_S
        if self._witnesses:
            self._loop.alarm(self._ask_others, ANSWER_S)
        else:
            self._ask_others()

    def cancel(self) -> None:
        """Ask nobody any more, and call the roll of those who have answered."""
        for fd in [*self._witnesses]:
            self._forget_witness(fd)
        for call in (self._ask_others, self._listen, self._next, self._hear_records):
            self._loop.alarm(call, None)
        if self._spying:
            self._spying.cancel()
        if self._asking:
            self._asking.end()
        self._targets.clear()
        self.is_busy, self._asking, self._spying, self._asked = False, None, None, []
        self._call_roll()
        self._deaf, self._records = [], {}  # the next attempt has its own

    # The worker itself

    def _ask_witness(self, target: Target) -> bool:
        """Whether it can answer."""
        if target.is_mute or not target.is_worker:
            return False
        try:
            one = asked.Question(target.process.pid, target.process.start)
        except OSError:
            return False
        self._witnesses[one.fd] = target, one
        self._loop.watch(one.fd, partial(self._hear, one.fd))
        return True

    def _hear(self, fd: int) -> None:
        target, one = self._witnesses[fd]
        try:
            answer = one.read()
        except OSError:  # it has ended, or tells what cannot be read
            self._targets.append(target)
        else:
            if answer is None:
                return
            self._note(target, BY_ITSELF, answer.threads)
            self._records[target.worker.rank] = answer.record
        self._forget_witness(fd)
        if not self._witnesses:
            self._loop.alarm(self._ask_others, 0)

    def _forget_witness(self, fd: int) -> Target:
        target, one = self._witnesses.pop(fd)
        self._loop.forget(fd)
        one.close()
        return target

    def _ask_others(self) -> None:
        """Those who have not answered, and what is no worker."""
        self._targets.extendleft(map(self._forget_witness, [*self._witnesses]))
        for target in self._targets:
            if target.is_worker and flight.is_on(target.worker.environ):
                self._ask_for_record(target.worker)
        self._next()

    def _next(self) -> None:
        """The next process; one after the other, each in a turn of its own."""
        if not self._targets:
            self._call_roll()
            self._end_at = machine.running_s() + RECORD_S
            self._hear_records()
            return
        target = self._targets.popleft()
        if not proc.is_alive(target.process):
            self._loop.alarm(self._next, 0)
        elif machine.running_s() > self._end_at:
            self._look(target, only_kernel=True)
        elif not target.is_mute and proc.catches(target.process.pid, signals.STACKS):
            self._ask(target)
        else:
            self._look(target)

    # The process itself

    def _ask(self, target: Target) -> None:
        self._asking = Asking(target, self._output)
        tree.send(signals.STACKS, [target.process])
        self._loop.alarm(self._listen, QUIET_S)

    def _listen(self) -> None:
        asking = self._asking
        assert asking is not None
        if asking.is_telling():
            self._loop.alarm(self._listen, QUIET_S)
            return
        self._asking = None
        text = asking.end()
        if text or not asking.is_visible:
            self._note(asking.target, BY_ITSELF, text)
            self._next()
        else:
            self._look(asking.target)

    # From outside

    def _look(self, target: Target, only_kernel: bool = False) -> None:
        def told(how: str, text: str) -> None:
            self._spying = None
            if text:
                self._note(target, how, text)
            self._loop.alarm(self._next, 0)

        pid = target.process.pid
        if only_kernel:
            told(*sources.by_the_kernel(pid))
        else:
            self._spying = sources.look(pid, self._loop, told)

    # The flight recorder

    def _ask_for_record(self, worker: launches.Worker) -> None:
        try:
            self._asked.append(flight.Asked(worker.rank, worker.environ))
        except OSError:
            self._deaf.append(worker.rank)

    def _hear_records(self) -> None:
        for one in list(self._asked):
            record = one.answer()
            if record:
                self._records[one.rank] = record
                self._asked.remove(one)
        if self._asked and machine.running_s() < self._end_at:
            self._loop.alarm(self._hear_records, QUIET_S)
            return
        said = []
        if self._deaf:
            said.append(f"{groups.ranks_of(self._deaf)}: no process group of NCCL's listens")
        if self._asked:
            ranks = groups.ranks_of(one.rank for one in self._asked)
            said.append(f"{ranks}: nothing written in {RECORD_S:g} s")
        if flight.names(self._records):
            found = flight.disagreement(self._records)
            said.append(found or "no disagreement, as far as the records go back")
        self._output.say(f"flight recorder: {words}" for words in said)
        self.recorded = self._records
        self._asked, self._deaf, self._records, self.is_busy = [], [], {}, False
        self._done()

    # What has been told

    def _note(self, target: Target, how: str, text: str) -> None:
        """Put it down in the rank's file, for the roll to be called."""
        self._answers.append(groups.Answer(target.worker.rank, target.is_worker, how, text))
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(machine.time()))
        name = f"{target.name}: {_command(target.process.pid)}"
        whole = f"{when} {name}, {how}:\n{text}\n"
        try:
            self._places.add(_keep(target.worker, self._scratch, whole))
        except OSError as error:
            self._output.say([f"cannot write to {FILE}: {error.strerror}; {INSTEAD}"])
            self._output.show(whole)

    def _call_roll(self) -> None:
        answers, places = self._answers, sorted(self._places)
        self._answers, self._places = [], set()
        called = groups.groups(answers)
        self.roll = [group for group in called if group.is_worker]
        self._output.say(f"  {group.line}" for group in called)
        if self.journal and answers:
            told = [group._asdict() for group in self.roll]
            self.journal.tell("roll", groups=told, words=[group.line for group in called])
        if places:
            more = f", and {len(places) - 1} more of them" if len(places) > 1 else ""
            self._output.say([f"the whole stacks are in {places[0]}{more}"])


def _keep(worker: launches.Worker, scratch: str, text: str) -> str:
    """Add to the file of a rank; the result is what to name. Raises OSError."""
    from spawnlaunch.run import files

    kept = next((route.file for route in worker.routes if route.file not in (None, os.devnull)), "")
    if kept:
        path = place = os.path.join(os.path.dirname(kept), FILE)
    else:
        place = os.path.join(os.path.dirname(scratch), f"stacks-{os.path.basename(scratch)}")
        path = os.path.join(place, f"rank-{worker.rank}.log")
        machine.makedirs(place, mode=0o700, exist_ok=True)
    fd = files.open_log(launches.Route(path, False))
    try:
        machine.write(fd, text.encode(errors="replace"))
    finally:
        machine.close(fd)
    return place


class Asking:
    """One process that tells its stacks on its stderr: how far it is."""

    def __init__(self, target: Target, output: Output) -> None:
        self.target = target
        self._source = output.stderr_of(target.worker.rank)
        self._file = target.worker.routes.stderr.file
        self._before = self._last = self._length()
        self._until = machine.running_s() + ANSWER_S
        self._sieve = frames.Sieve()
        if self._source:
            self._source.sift(self._sieve)

    @property
    def is_visible(self) -> bool:
        """Whether it is seen here what it tells: a worker alone may write to our stderr itself."""
        return self._source is not None or self._file is not None

    def is_telling(self) -> bool:
        """Whether it may have more to say than at the last call."""
        last, self._last = self._last, self._length()
        if machine.running_s() > self._until:  # it may be one that always has something to say
            return False
        return self._last > last or (self._last == self._before and self.is_visible)

    def end(self) -> str:
        """What it has told; what it says from now on is its own again."""
        if self._source:
            self._source.sift(None)
            self._source.show(self._sieve.rest())
        elif self._file:
            text, _ = reading.end_of_file(self._file, MOST_READ, self._before) or ("", True)
            self._sieve(text.encode())
        return self._sieve.text

    def _length(self) -> int:
        if self._source is not None:
            return self._source.received
        try:
            return machine.stat(self._file).st_size if self._file else 0
        except OSError:
            return 0


def _command(pid: int) -> str:
    """The beginning of its command line."""
    words = (proc.read(pid, "cmdline") or "").replace("\0", " ").split()
    return " ".join(words)[:60] or "no name"
