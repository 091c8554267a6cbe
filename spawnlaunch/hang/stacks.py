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
that is made for them beside the scratch directory and stays.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from spawnlaunch import witness
from spawnlaunch.base import events, machine, reading, records, signals
from spawnlaunch.hang import asked, culprits, groups, held, spying
from spawnlaunch.node import proc
from spawnlaunch.output import Output
from spawnlaunch.run import tree
from spawnlaunch.workers import files, launches

MOST_READ = 1 << 20  # bytes of the stacks of one process
ANSWER_S = 2.0  # for a process to write its stacks, which takes it milliseconds
LOOKS_S, EVERY_S = 0.5, 0.04  # how long a worker looks at its main thread, and how often
MISSING_S = 0.5  # in a collective that the others wait in, while no rank writes anything
HERE = "this is where they are:"
QUIET_S = 0.1  # after which a process that writes its stacks has written all
ALL_S = 30.0  # for all processes together
FILE = "stacks.log"
INSTEAD = "name another directory with --log-dir; the stacks stand here:"
BY_ITSELF = "by itself"


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
    """The roll call: asks processes for stacks, writes the roll to `note`, and calls `on_done`."""

    def __init__(
        self, loop: events.Loop, output: Output, scratch: str, on_done: Callable[[], None],
        note: Callable[..., None],
    ) -> None:  # fmt: skip
        self._loop, self._output, self._scratch = loop, output, scratch
        self._on_done, self._note = on_done, note
        self._heading: str | None = None  # the beginning of a report that is not written yet
        self._obstacles: list[str] = []  # lines about ranks that are held from outside
        self._witnesses: dict[int, tuple[Target, asked.Question]] = {}  # by the fds of questions
        self._targets: deque[Target] = deque()
        self._until = 0.0  # by machine.running_s
        self._writing: Writing | None = None
        self._spying: spying.Spying | None = None
        self._stacks: list[groups.StackText] = []
        self._places: set[str] = set()  # directories of the files
        self.is_busy = False
        self.roll: Sequence[groups.Group] = ()  # when it was called last
        # The last testimonies of the ranks that have torch, which wait or are waited for.
        self.testimonies: dict[int, asked.Testimony] = {}

    def call(self, workers: Iterable[tuple[launches.Worker, int]], heading: str = "") -> None:
        """Ask these workers, each with its pid, and their descendants."""
        if self.is_busy:
            if heading:
                self._output.say([heading])
            return
        self._heading, self.testimonies, self.is_busy = heading, {}, True
        if not proc.is_proc_usable():
            self._obstacles.append("no stacks can be shown: /proc does not show our PID namespace")
            workers = ()
        for worker, pid in workers:
            file = witness.stack_file(self._scratch, pid)
            for process in proc.below(filter(None, [proc.look(pid)])):
                if process.dead:
                    continue
                obstacle = held.look(process.pid, held.status(process.pid))
                is_mute = bool(obstacle and obstacle.is_mute)
                target = Target(worker, process, process.pid == pid, is_mute, file)
                if obstacle:
                    self._obstacles.append(f"{target.name} is {obstacle.words}")
                if target.is_mute and target.is_worker:
                    self.testimonies[worker.rank] = asked.SILENT
                if not self._question_witness(target):
                    self._targets.append(target)
        self._until = machine.running_s() + ALL_S
        if self._witnesses:
            self._loop.alarm(self._compare, LOOKS_S + ANSWER_S)
        else:
            self._compare()

    def cancel(self) -> None:
        """Stop asking, and call the roll of the processes that have answered."""
        if not self.is_busy:
            return
        for fd in [*self._witnesses]:
            self._forget_witness(fd)
        for call in (self._compare, self._listen, self._next):
            self._loop.alarm(call, None)
        if self._spying:
            self._spying.cancel()
        self._targets.clear()
        self.is_busy, self._writing, self._spying = False, None, None
        self._report()
        self._call_roll()

    # The worker itself

    def _question_witness(self, target: Target) -> bool:
        """Ask the worker's witness; the result is whether it can answer."""
        if target.is_mute or not target.is_worker:
            return False
        try:
            question = asked.Question(target.process.pid, target.process.start, LOOKS_S, EVERY_S)
        except OSError:
            return False
        self._witnesses[question.fd] = target, question
        self._loop.watch(question.fd, partial(self._read_witness, question.fd))
        return True

    def _read_witness(self, fd: int) -> None:
        target, question = self._witnesses[fd]
        try:
            testimony = question.read()
        except OSError:  # the worker has ended, or its answer cannot be read
            self._targets.append(target)
        else:
            if testimony is None:
                return
            self._keep(target, BY_ITSELF, testimony.threads)
            self.testimonies[target.worker.rank] = testimony
        self._forget_witness(fd)
        if not self._witnesses:
            self._loop.alarm(self._compare, 0)

    def _forget_witness(self, fd: int) -> Target:
        target, question = self._witnesses.pop(fd)
        self._loop.forget(fd)
        question.close()
        return target

    def _compare(self) -> None:
        """Report on the answers, and go on to the processes that have given none."""
        late = [*map(self._forget_witness, [*self._witnesses])]
        self.testimonies.update((target.worker.rank, asked.SILENT) for target in late)
        self._targets.extendleft(late)
        self._report()
        self._next()

    def _report(self) -> None:
        """Write which ranks are waited for, and which are held from outside."""
        heading, self._heading = self._heading, None
        if heading is None:  # it is written
            return
        obstacles, self._obstacles = self._obstacles, []
        lines = hang_lines(self.testimonies)
        if heading and lines:
            lines = [f"{heading}: {lines[0]}", *lines[1:], HERE]
        elif heading:
            lines = [f"{heading}; {HERE}"]
        self._output.say([*lines, *obstacles])

    # The others: one after the other, each in a turn of its own

    def _next(self) -> None:
        if not self._targets:
            self._call_roll()
            self.is_busy = False
            self._on_done()
            return
        target = self._targets.popleft()
        receive = partial(self._receive, target)
        if not proc.is_alive(target.process):
            self._loop.alarm(self._next, 0)
        elif machine.running_s() > self._until:
            receive(*spying.without_stacks(target.process.pid, f"{ALL_S:g} s were over"))
        elif not target.is_mute and proc.catches(target.process.pid, signals.STACKS):
            self._writing = Writing(target)
            tree.send(signals.STACKS, [target.process])
            self._loop.alarm(self._listen, QUIET_S)
        else:
            self._spying = spying.look(target.process.pid, self._loop, receive)

    def _listen(self) -> None:
        """Wait for the end of what a process writes; where it writes nothing, ask py-spy."""
        assert self._writing is not None
        if self._writing.goes_on():
            self._loop.alarm(self._listen, QUIET_S)
            return
        target, text = self._writing.target, self._writing.text()
        self._writing, receive = None, partial(self._receive, target)
        if text:
            receive(BY_ITSELF, text)
        else:
            self._spying = spying.look(target.process.pid, self._loop, receive)

    def _receive(self, target: Target, source: str, text: str) -> None:
        self._spying = None
        if text:
            self._keep(target, source, text)
        self._loop.alarm(self._next, 0)

    # The answers

    def _keep(self, target: Target, source: str, text: str) -> None:
        """Write the answer to the rank's file, and keep it for the roll."""
        self._stacks.append(groups.StackText(target.worker.rank, target.is_worker, source, text))
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(machine.time()))
        words = (proc.read(target.process.pid, "cmdline") or "").replace("\0", " ").split()
        command = " ".join(words)[:60] or "no name"
        whole = f"{when} {target.name}: {command}, {source}:\n{text}\n"
        try:
            self._places.add(_write(target.worker, self._scratch, whole))
        except OSError as error:
            self._output.say([f"cannot write to {FILE}: {error.strerror}; {INSTEAD}"])
            self._output.show(whole)

    def _call_roll(self) -> None:
        stacks, places, self._stacks, self._places = self._stacks, sorted(self._places), [], set()
        called = groups.groups(stacks)
        self.roll = [group for group in called if group.is_worker]
        lines = [group.line for group in called]
        self._output.say(f"  {line}" for line in lines)
        if stacks:
            self._note("roll", groups=[group.as_recorded() for group in self.roll], words=lines)
        if places:
            more = f", and {len(places) - 1} more of them" if len(places) > 1 else ""
            self._output.say([f"the whole stacks are in {places[0]}{more}"])


def hang_lines(testimonies: Mapping[int, asked.Testimony], uncertain_s: float = 0.0) -> list[str]:
    """A line for each rank that the others wait for, and for ranks in different collectives."""
    verdict = culprits.judged(testimonies, uncertain_s, hang_s=MISSING_S)
    hung = [culprit for culprit in verdict.culprits if culprit.is_hang]
    return [note.words for note in culprits.notes(verdict._replace(culprits=hung))]


def _write(worker: launches.Worker, scratch: str, text: str) -> str:
    """Add the text to the file of a rank.

    The result is the path to name. Raises OSError.
    """
    log = next((route.file for route in worker.routes if route.file not in (None, os.devnull)), "")
    if log:
        path = place = os.path.join(os.path.dirname(log), FILE)
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


class Writing:
    """The progress of a process that writes its stacks."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._before = self._last = self._length()
        self._until = machine.running_s() + ANSWER_S

    def goes_on(self) -> bool:
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
