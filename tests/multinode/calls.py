"""A stand-in that keeps the calls of it."""

from __future__ import annotations

from typing import Any


class Calls:
    """Keeps what rules call."""

    place = "here:29400"

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.made.append((name, *args))

    def calls(self, name: str) -> list[list[Any]]:
        """The arguments of each call."""
        return [args for called, *args in self.made if called == name]

    def line_again(self, rank: int, nproc: int) -> str:
        return f"<{rank} {nproc}>"

    def taken(self) -> list[tuple[Any, ...]]:
        made, self.made = self.made, []
        return made
