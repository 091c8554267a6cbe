"""The places of the workers: the stacks of each of their processes, from the best source.

A process that is held from outside is named first, with what holds it (hang/held.py), and is not
asked where none of its threads runs.

1. The worker itself, once it has imported torch: a thread in it answers (spawnlaunch/witness), with
   the records of torch's flight recorder. All workers are asked at once.
2. The process itself, where it catches the signal SPAWNLAUNCH_STACK_SIGNAL: faulthandler writes the
   stacks of all its threads to a file in the scratch directory, even while one of them keeps the
   GIL. A worker registers that at its start where its Python finds this package.
3. py-spy, where it is installed and may look.

Then the answers are compared: the first line names the rank that the others wait for. By 2 and 3
one process after the other is asked. All of it happens in turns of the loop: the launcher goes on
watching meanwhile. Then the roll is called: a line for each group of processes in the same place.
The whole stacks are in files, one per rank: in its directory of --log-dir, or else in a directory
that is made for them beside the scratch directory and stays. The records name the first collective
on which ranks disagree. Where a worker has not answered, its NCCL recorder is asked through its own
pipe, if the user has switched it on.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from spawnlaunch import witness
from spawnlaunch.base import events, machine, reading, records, signals
from spawnlaunch.hang import asked, culprits, flight, groups, held, spying
from spawnlaunch.node import proc
from spawnlaunch.output import Output
from spawnlaunch.run import tree
from spawnlaunch.workers import files, flight_recorder, launches

MOST_READ = 1 << 20  # bytes of the stacks of one process
ANSWER_S = 2.0  # for a process to tell its stacks, which takes it milliseconds
LOOKS_S, EVERY_S = 0.5, 0.04  # how long a worker looks at its main thread, and how often
MISSING_S = 0.5  # in a collective that the others wait in, while no rank writes anything
HERE = "this is where they are:"
QUIET_S = 0.1  # without another word: it has told all
ALL_S = 30.0  # for all processes together
RECORD_S = 10.0  # for NCCL to write its records; it looks for a question every second
FILE = "stacks.log"
INSTEAD = "name another directory with --log-dir; the stacks stand here:"
BY_ITSELF = "told by itself"


class Target(records.NamedTuple):
    """A process to be asked."""

    worker: launches.Worker
    process: proc.Process
    is_worker: bool  # and no child of one
    is_mute: bool  # it is held from outside, and cannot answer
    file: str  # for its stacks, by faulthandler

    @property
    def name(self) -> str:
        """The process as a person looks for it."""
        below = "" if self.is_worker else f", below {self.process.parent}"
        return f"{self.worker.name} (pid {self.process.pid}{below})"


class RollCall:
    """The roll call: asks processes for stacks, writes the roll to `note`, and calls `done`."""

    def __init__(
        self,
        loop: events.Loop,
        output: Output,
        scratch: str,
        done: Callable[[], None],
        note: Callable[..., None],
    ) -> None:
        self._loop = loop
        self._output = output
        self._scratch = scratch
        self._done = done
        self._tell_of = note
        self._witnesses: dict[int, tuple[Target, asked.Question]] = {}  # by the fds of questions
        self._targets: deque[Target] = deque()
        self.is_busy = False
        self._end_at = 0.0  # by machine.running_s
        self._asking: Asking | None = None
        self._spying: spying.Spying | None = None
        self._answers: list[groups.Answer] = []
        self._told: dict[int, asked.Testimony] = {}  # by rank, of ranks that wait or are waited for
        self._heading = ""  # the beginning of the report, once it is known which rank is waited for
        self._held: list[str] = []  # lines about ranks that are held from outside
        self._places: set[str] = set()  # directories of the files
        self._asked: list[flight.Asked] = []
        self._deaf: list[int] = []  # ranks that cannot be asked for records
        self._records: dict[int, flight.Record] = {}
        # When the roll was called last
        self.roll: Sequence[groups.Group] = ()
        self.recorded: Mapping[int, flight.Record] = {}

    def tell(self, workers: Iterable[tuple[launches.Worker, int]], heading: str = "") -> None:
        """Ask these workers, each with its pid, and their descendants."""
        if self.is_busy:
            if heading:
                self._output.say([heading])
            return
        self._heading = heading
        if not proc.is_proc_ours():
            self._held.append("no stacks can be shown: /proc does not show our PID namespace")
            workers = ()
        for worker, pid in workers:
            file = witness.stack_file(self._scratch, pid)
            for process in proc.below(filter(None, [proc.look(pid)])):
                if process.dead:
                    continue
                found = held.look(process.pid, held.status(process.pid))
                is_mute = bool(found and found.is_mute)
                target = Target(worker, process, process.pid == pid, is_mute, file)
                if found:
                    self._held.append(f"{target.name} is {found.words}")
                if target.is_mute and target.is_worker:
                    self._told[worker.rank] = asked.silent(int(machine.time() * 1e9))
                if not self._ask_witness(target):
                    self._targets.append(target)
        self.is_busy = True
        self._end_at = machine.running_s() + ALL_S
        if self._witnesses:
            self._loop.alarm(self._ask_others, LOOKS_S + ANSWER_S)
        else:
            self._ask_others()

    def cancel(self) -> None:
        """Stop asking, and call the roll of the processes that have answered."""
        for fd in [*self._witnesses]:
            self._forget_witness(fd)
        self._begin_report()
        for call in (self._ask_others, self._listen, self._next, self._hear_records):
            self._loop.alarm(call, None)
        if self._spying:
            self._spying.cancel()
        self._targets.clear()
        self.is_busy, self._asking, self._spying, self._asked = False, None, None, []
        self._call_roll()
        self._deaf, self._records = [], {}  # the next attempt has its own

    # The worker itself

    def _ask_witness(self, target: Target) -> bool:
        """Ask the worker's witness; the result is whether it can answer."""
        if target.is_mute or not target.is_worker:
            return False
        try:
            one = asked.Question(target.process.pid, target.process.start, LOOKS_S, EVERY_S)
        except OSError:
            return False
        self._witnesses[one.fd] = target, one
        self._loop.watch(one.fd, partial(self._hear, one.fd))
        return True

    def _hear(self, fd: int) -> None:
        target, one = self._witnesses[fd]
        try:
            answer = one.read()
        except OSError:  # the worker has ended, or its answer cannot be read
            self._targets.append(target)
        else:
            if answer is None:
                return
            self._note(target, BY_ITSELF, answer.threads)
            self._records[target.worker.rank] = answer.record
            self._told[target.worker.rank] = answer
        self._forget_witness(fd)
        if not self._witnesses:
            self._loop.alarm(self._ask_others, 0)

    def _forget_witness(self, fd: int) -> Target:
        target, one = self._witnesses.pop(fd)
        self._loop.forget(fd)
        one.close()
        return target

    def _ask_others(self) -> None:
        """Ask the workers that have not answered, and the processes that are no workers."""
        late = [*map(self._forget_witness, [*self._witnesses])]
        now = int(machine.time() * 1e9)
        self._told.update((one.worker.rank, asked.silent(now)) for one in late)
        self._targets.extendleft(late)
        self._begin_report()
        for target in self._targets:
            if target.is_worker and flight_recorder.is_on(target.worker.environ):
                self._ask_for_record(target.worker)
        self._next()

    def _begin_report(self) -> None:
        """Write which ranks are waited for, and which are held from outside."""
        heading, held, told = self._heading, self._held, self._told
        self._heading, self._held, self._told = "", [], {}
        found = culprits.judged(told, hang_s=MISSING_S).culprits if told else ()
        waited = [words for _, words in culprits.waited_for(one for one in found if one.is_hang)]
        if heading:
            waited = [f"{heading}: {waited[0]}", *waited[1:], HERE] if waited else []
        lines = waited or [f"{heading}; {HERE}"] * bool(heading)
        self._output.say([*lines, *held])

    def _next(self) -> None:
        """Ask the next process; one after the other, each in a turn of its own."""
        if not self._targets:
            self._call_roll()
            self._end_at = machine.running_s() + RECORD_S
            self._hear_records()
            return
        target = self._targets.popleft()
        if not proc.is_alive(target.process):
            self._loop.alarm(self._next, 0)
        elif machine.running_s() > self._end_at:
            self._hear_of(target, *spying.untold(target.process.pid, f"{ALL_S:g} s were over"))
        elif not target.is_mute and proc.catches(target.process.pid, signals.STACKS):
            self._ask(target)
        else:
            self._look(target)

    # The process itself

    def _ask(self, target: Target) -> None:
        self._asking = Asking(target)
        tree.send(signals.STACKS, [target.process])
        self._loop.alarm(self._listen, QUIET_S)

    def _listen(self) -> None:
        asking = self._asking
        assert asking is not None
        if asking.is_telling():
            self._loop.alarm(self._listen, QUIET_S)
            return
        self._asking = None
        if text := asking.text():
            self._hear_of(asking.target, BY_ITSELF, text)
        else:
            self._look(asking.target)

    # From outside

    def _look(self, target: Target) -> None:
        self._spying = spying.look(target.process.pid, self._loop, partial(self._hear_of, target))

    def _hear_of(self, target: Target, how: str, text: str) -> None:
        self._spying = None
        if text:
            self._note(target, how, text)
        self._loop.alarm(self._next, 0)

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

    # The answers

    def _note(self, target: Target, how: str, text: str) -> None:
        """Write the answer to the rank's file, and keep it for the roll."""
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
        if answers:
            told = [group._asdict() for group in self.roll]
            self._tell_of("roll", groups=told, words=[group.line for group in called])
        if places:
            more = f", and {len(places) - 1} more of them" if len(places) > 1 else ""
            self._output.say([f"the whole stacks are in {places[0]}{more}"])


def _keep(worker: launches.Worker, scratch: str, text: str) -> str:
    """Add the text to the file of a rank.

    The result is the path to name. Raises OSError.
    """
    kept = next((route.file for route in worker.routes if route.file not in (None, os.devnull)), "")
    if kept:
        path = place = os.path.join(os.path.dirname(kept), FILE)
    else:
        place = os.path.join(os.path.dirname(scratch), f"stacks-{os.path.basename(scratch)}")
        path = os.path.join(place, f"rank-{worker.rank}.log")
        files.make_directory(place)
    fd = files.open_log(launches.Route(path, False))
    try:
        machine.write(fd, text.encode(errors="replace"))
    finally:
        machine.close(fd)
    return place


class Asking:
    """The progress of a process that is asked for its stacks."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._before = self._last = self._length()
        self._until = machine.running_s() + ANSWER_S

    def is_telling(self) -> bool:
        """Whether the process may have written more since the last call."""
        last, self._last = self._last, self._length()
        if machine.running_s() > self._until:
            return False
        return self._last > last or self._last == self._before

    def text(self) -> str:
        """The text that the process has written."""
        text, _ = reading.end_of_file(self.target.file, MOST_READ, self._before) or ("", True)
        return text

    def _length(self) -> int:
        try:
            return machine.stat(self.target.file).st_size
        except OSError:
            return 0


def _command(pid: int) -> str:
    """The beginning of the process's command line."""
    words = (proc.read(pid, "cmdline") or "").replace("\0", " ").split()
    return " ".join(words)[:60] or "no name"
