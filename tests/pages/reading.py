"""Read the pages of the documentation: files that a reader saves, and commands to run.

A block of code whose first line is `# NAME.py` (or .yaml) is a file; one that begins with
`# DIRECTORY/NAME.py` is a part of that file of the repository. A block of `console` has commands
after "$ "; the rest of it is what they print. A block of `bash` is a part of a script. A comment
right above a block says what becomes of its commands:

    <!-- needs: eight devices -->     no test has that
    <!-- not run: fetches ... -->     why no test runs it
    <!-- runs in: tests/... -->       the test that does
    <!-- status: 1 -->                run where it stands, and ends with this status
    <!-- Ctrl-C: step 8 -->           interrupted once it has printed this, and ends with 75

Without one they are run as they stand, in the order of the page, and end with 0.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.launching import ROOT

BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[^>]*?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.S | re.M
)
FILE = re.compile(r"# ([\w-]+\.(?:py|yaml))\n")
PART = re.compile(r"# ([\w-]+/[\w/-]+\.py)\n")
SHELLS = ("console", "bash", "sh", "shell")
MARKS = ("needs", "not run", "runs in", "status", "Ctrl-C")


class Block(NamedTuple):
    """A block of code: its language, its text, and the mark above it, as `word: rest`."""

    kind: str
    text: str
    mark: str
    line: int

    @property
    def word(self) -> str:
        return self.mark.partition(": ")[0]

    @property
    def rest(self) -> str:
        return self.mark.partition(": ")[2]

    @property
    def part_of(self) -> str:
        """The file of the repository of which it is a part, or an empty text."""
        match = PART.match(self.text)
        return match[1] if match else ""

    @property
    def file(self) -> str:
        """The name under which a reader saves it, or an empty text."""
        match = FILE.match(self.text)
        return match[1] if match and self.kind in ("python", "yaml") else ""

    @property
    def commands(self) -> list[str]:
        if self.kind != "console":
            return [self.text] if self.kind in SHELLS else []
        joined = self.text.replace("\\\n", "")
        return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]


def pages() -> list[Path]:
    """Return the README, all of docs/, and the pages on scripts and manifests."""
    others = (ROOT / name / "README.md" for name in ("slurm", "kubernetes"))
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *others]


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("kind")) + 1
        mark = match["mark"] or ""
        yield Block(match["kind"], match["text"], mark if mark.startswith(MARKS) else "", line)


def links(page: Path) -> Iterator[str]:
    """Yield the links of a page to files of the repository, without the part after a #."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"\w+:|#", target):
            yield target.partition("#")[0]
