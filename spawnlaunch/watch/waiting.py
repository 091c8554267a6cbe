"""Ask the ranks now and then for torch's records, and keep the result of comparing the answers.

An answer costs a rank some CPU time, by the number of collectives that its recorder keeps, and us
some to read it. So ranks are asked again only when that is a small share of the time passed. A rank
is reported as waited for when two looks in a row show it, as one may show it by chance; or at once,
if wanted.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence

from spawnlaunch.hang import asked, culprits
from spawnlaunch.watch import usage

LOOK_S, EVERY_S = 1.5, 0.03  # how long the main threads are looked at, and how often
REST_S = 2.5  # at least, until the next question
SHARE = 0.003  # of a rank's time; our own time for each rank counts as its own
PATIENCE_S = 3.0  # with an answer: its thread needs the GIL, which a hanging rank may hold


class Inquiry:
    """The last answers of the ranks of each launch."""

    def __init__(self, look_s: float = LOOK_S, at_once: bool = False) -> None:
        self.answers: dict[str, dict[int, asked.Testimony]] = {}  # by launch and rank
        self._silent: set[tuple[str, int]] = set()  # those that cannot answer
        self.verdicts: Mapping[str, culprits.Verdict] = {}  # by launch
        self._look_s = look_s
        self._suspects: set[tuple[str, int]] | None = None if at_once else set()
        self._questions: dict[tuple[str, int], asked.Question] = {}
        self._due = self._until = 0.0  # monotonic clock
        self._used_s = 0.0  # CPU time, since they were asked

    @property
    def fds(self) -> list[int]:
        """The descriptors through which more of an answer comes; empty where none is awaited."""
        return [question.fd for question in self._questions.values()]

    def start_if_due(self, samples: Sequence[usage.Sample]) -> bool:
        """Ask these ranks, if it is time to; the result is whether any was asked."""
        now = time.monotonic()
        if self._questions or now < self._due:
            return False
        self._until, self._due = now + self._look_s + PATIENCE_S, now + self._look_s + REST_S
        self.answers, self._silent, self._used_s = {}, set(), 0.0
        for sample in samples:
            key = sample.launch, sample.rank
            try:
                question = asked.Question(sample.pid, sample.start, self._look_s, EVERY_S)
                self._questions[key] = question
            except BlockingIOError:  # it has not heard earlier questions
                self._silent.add(key)
            except OSError:  # it has no torch, or is another's
                continue
        if not self._questions:  # the ranks that were waited for are gone
            self.verdicts = {}
        return bool(self._questions)

    def read(self) -> bool:
        """Read the parts of answers that have come; True: there are new verdicts.

        That is when all ranks have answered, or will not answer any more.
        """
        if not self._questions:
            return False
        began = time.thread_time()
        for key, question in list(self._questions.items()):
            if self._has_ended(key, question):
                question.close()
                del self._questions[key]
        if self._questions:
            self._used_s += time.thread_time() - began
            return False
        if self._suspects is not None:
            before = self.verdicts.items()
            self._suspects = {(name, culprit.rank) for name, v in before for culprit in v.culprits}
        answers = {launch: dict(each) for launch, each in self.answers.items()}
        for launch, rank in self._silent:
            answers.get(launch, {})[rank] = asked.SILENT
        self.judge(answers)
        # The next question is so late that all of them take a small share of the time.
        used_s = self._used_s + time.thread_time() - began
        costs = [answer.cost_s for each in self.answers.values() for answer in each.values()]
        cost_s = max(costs, default=0.0) + used_s / max(1, len(costs))
        self._due = time.monotonic() + max(REST_S, cost_s / SHARE - self._look_s)
        return True

    def _has_ended(self, key: tuple[str, int], question: asked.Question) -> bool:
        """Whether the rank has answered, or will not answer any more."""
        try:
            answer = question.read()
        except OSError:  # it has ended, or its answer cannot be read
            return True
        is_late = time.monotonic() >= self._until
        if answer:
            self.answers.setdefault(key[0], {})[key[1]] = answer
        elif is_late:
            self._silent.add(key)
        return answer is not None or is_late

    def judge(
        self, answers: Mapping[str, Mapping[int, asked.Testimony]], uncertain_s: float = 0.0
    ) -> None:
        """Compare the answers of the ranks.

        The clocks of their nodes may differ by `uncertain_s`.
        """
        self.verdicts = {
            launch: culprits.judged(each, uncertain_s) for launch, each in answers.items()
        }

    def finish(self) -> None:
        """Wait for the answers."""
        while self._questions:
            select.select(self.fds, [], [], max(0.0, self._until - time.monotonic()))
            self.read()

    def shown(self, samples: Sequence[usage.Sample]) -> list[usage.Sample]:
        """The samples, with the shares of time in which they wait, and are waited for."""
        shares = {
            (launch, rank): share
            for launch, verdict in self.verdicts.items()
            for rank, share in verdict.shares.items()
        }
        return [
            each._replace(**shares[key]._asdict()) if (key := (each.launch, each.rank)) in shares
            else each
            for each in samples
        ]  # fmt: skip

    def findings(self) -> dict[str, list[culprits.Note]]:
        """Notes on ranks, by launch.

        The others wait for such a rank, or it is in another collective than the others.
        """
        return {
            launch: culprits.notes(verdict._replace(culprits=[
                each for each in verdict.culprits
                if each.is_hang or self._suspects is None or (launch, each.rank) in self._suspects
            ]))
            for launch, verdict in self.verdicts.items()
        }  # fmt: skip
