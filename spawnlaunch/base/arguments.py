"""Parse the command lines of the programs beside the launcher with argparse."""

import argparse
from typing import Any, NoReturn

from spawnlaunch.base import printing


class Parser(argparse.ArgumentParser):
    """A parser of the arguments after `python -m NAME`; it shows its description unchanged."""

    def __init__(self, name: str, description: str | None, **options: Any) -> None:
        super().__init__(
            prog=f"python -m {name}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )
        self.name = name

    def print_help(self, _: object = None) -> NoReturn:
        """Print the help page and exit; the status is 74 where it cannot be written."""
        raise SystemExit(printing.print_page(self.format_help(), self.name))

    def error(self, message: str) -> NoReturn:
        printing.print_error(f"{message}; type {self.prog} --help", self.name)
        raise SystemExit(2)
