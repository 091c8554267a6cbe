"""Which streams of which ranks: torchrun's value of --redirects and --tee, without its limits.

3          both streams of all ranks
0:3,11:1   by local rank
r9:3       by global rank
"""

from __future__ import annotations

from spawnlaunch.reading import excerpt, is_number
from spawnlaunch.records import NamedTuple

STDOUT, STDERR = 1, 2


class StreamsByRank(NamedTuple):
    """A set of streams (0 none, 1 stdout, 2 stderr, 3 both) for all local ranks, or for each."""

    for_all: int = 0
    by_rank: tuple[tuple[str, int], ...] = ()  # ("9" or "r9", streams); the others have none

    @classmethod
    def parse(cls, text: str) -> StreamsByRank:
        """
        >>> StreamsByRank.parse("3").of(23, 7), StreamsByRank.parse("0:3,10:1").of(26, 10)
        (3, 1)
        >>> StreamsByRank.parse("r23:2").of(23, 7), StreamsByRank.parse("r23:2").of(7, 7)
        (2, 0)

        Raises ValueError.
        """
        if text in ("0", "1", "2", "3"):
            return cls(for_all=int(text))
        by_rank = []
        for entry in text.split(","):
            rank, _, streams = entry.partition(":")
            number = rank.removeprefix("r")
            if not (is_number(number) and streams in ("0", "1", "2", "3")):
                raise ValueError(
                    f"{excerpt(text)} is not a choice of streams; type 1 for stdout, 2 for stderr, "
                    "3 for both, or by local rank: 0:3,1:1, or by global rank: r9:3"
                )
            by_rank.append((rank[: -len(number)] + str(int(number)), int(streams)))
        return cls(by_rank=tuple(by_rank))

    def of(self, rank: int, local_rank: int) -> int:
        """The streams of one rank."""
        by_rank = dict(self.by_rank)
        return by_rank.get(f"r{rank}", by_rank.get(str(local_rank), self.for_all))

    @property
    def used(self) -> bool:
        """Whether any stream of any rank is meant."""
        return bool(self.for_all or any(streams for _, streams in self.by_rank))
