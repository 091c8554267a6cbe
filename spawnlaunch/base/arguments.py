"""The command lines of the programs beside the launcher: argparse, whose help is a page of ours."""

import argparse
from typing import Any, NoReturn

from spawnlaunch.base import printing


class Parser(argparse.ArgumentParser):
    """Reads what stands behind `python -m NAME`; the description is shown as it is written."""

    def __init__(self, name: str, description: str | None, **options: Any) -> None:
        super().__init__(
            prog=f"python -m {name}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )
        self.name = name

    def print_help(self, _: object = None) -> NoReturn:
        """As any page: with status 74 where it cannot be written."""
        raise SystemExit(printing.print_page(self.format_help(), self.name))

    def error(self, message: str) -> NoReturn:
        printing.print_error(f"{message}; type {self.prog} --help", self.name)
        raise SystemExit(2)
