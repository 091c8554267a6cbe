"""Which output streams of which ranks: torchrun's value of --redirects, without its limits."""

from typing import NamedTuple

STDOUT, STDERR = 1, 2


class StreamsByRank(NamedTuple):
    """A set of streams (0 none, 1 stdout, 2 stderr, 3 both) for all local ranks, or for each."""

    for_all: int = 0
    by_rank: tuple[tuple[int, int], ...] = ()  # (local rank, streams); the others have none

    @classmethod
    def parse(cls, text: str) -> "StreamsByRank":
        """
        >>> StreamsByRank.parse("3").of(7), StreamsByRank.parse("0:3,10:1").of(10)
        (3, 1)

        Raises ValueError.
        """
        if text in ("0", "1", "2", "3"):
            return cls(for_all=int(text))
        by_rank = []
        for entry in text.split(","):
            rank, _, streams = entry.partition(":")
            if not (rank.isascii() and rank.isdigit() and streams in ("0", "1", "2", "3")):
                raise ValueError(
                    f"{text!r} is not a choice of streams; type 1 for stdout, 2 for stderr, "
                    "3 for both, or by local rank: 0:3,1:1"
                )
            by_rank.append((int(rank), int(streams)))
        return cls(by_rank=tuple(by_rank))

    def of(self, local_rank: int) -> int:
        """The streams of one local rank."""
        return dict(self.by_rank).get(local_rank, self.for_all)

    @property
    def used(self) -> bool:
        """Whether any stream of any rank is meant."""
        return bool(self.for_all or any(streams for _, streams in self.by_rank))
