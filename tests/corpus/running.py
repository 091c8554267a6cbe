"""Start a program under one of the launchers, and see what has come of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from tests.corpus.table import SCRIPTS, Program, accelerate
from tests.dropin.launches import SPAWNLAUNCH, TORCHRUN
from tests.support.launching import GLOO, ROOT, clean_environ, start
from tests.support.patience import PATIENCE_S
from tests.support.processes import nothing_left_behind, processes_with

MODULES = {
    (TORCHRUN, "torchrun"): "torch.distributed.run",
    (TORCHRUN, "launch"): "torch.distributed.launch",
    (SPAWNLAUNCH, "torchrun"): "spawnlaunch",
    (SPAWNLAUNCH, "launch"): "spawnlaunch.distributed_launch",
}
ALONE = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONDONTWRITEBYTECODE": "",
}
MARK = "CORPUS_MARK"  # in the environment of all that a launch has started
PREFIX = re.compile(r"^\[(?:default|[\w.-]+:)?\d+\]:? ", re.MULTILINE)
TIMES = re.compile(r"'\w+_(?:runtime|per_second)': '[^']*'")  # as Trainer prints them
ERROR = "error.json"  # where a program names it as the launch's error file
# Nor can a rank meet another, now and then, that has ended well meanwhile: gloo under any launcher,
# and here rank 0's store, which under torchrun outlives it ("agent store" in docs/torchrun.md).
ENDED = re.compile("Gloo connectFullMesh failed|Did the remote server shutdown or crash")
TRIES = 4
# Now and then torchrun's workers of another attempt wait for each other for ever, in gloo.
ENOUGH_S = {TORCHRUN: 400.0, SPAWNLAUNCH: float(PATIENCE_S)}


class Came(NamedTuple):
    """What has come of a program."""

    status: int
    lines: list[str]  # in the order of the alphabet
    files: dict[str, str]  # by name, what is in them


class Place:
    """A directory for a launch, and the words that a line may have of it."""

    def __init__(self, top: Path) -> None:
        self.cwd, self.tmp, self.top = top / "cwd", top / "tmp", top
        for each in (self.cwd, self.tmp):
            each.mkdir(parents=True)
        self.mark = f"{MARK}={uuid4().hex}"

    def filled(self, text: str) -> str:
        """The text of a row with the paths of this launch; ${local_rank} stays."""
        names = {"here": SCRIPTS, "python": sys.executable, "dir": self.cwd, "root": ROOT}
        for name, path in names.items():
            text = text.replace(f"{{{name}}}", str(path))
        return text.replace("{accelerate}", str(accelerate())) if "{acc" in text else text

    def start(
        self, launcher: str, program: Program, flags: tuple[str, ...] = (), number: int = 0
    ) -> subprocess.Popen[Any]:
        """Start it; `flags` come before those of its row. What it writes is added to files."""
        extra = {name: self.filled(value) for name, value in program.environ.items()}
        mark = dict([self.mark.split("=")])
        environ = clean_environ(**{**ALONE, **mark, "TMPDIR": str(self.tmp), **extra})
        (self.top / "stdin").write_text(program.stdin)
        command = (sys.executable, "-m", MODULES[launcher, program.program])
        words = [self.filled(word) for word in shlex.split(program.line)]
        with (
            (self.top / "stdin").open() as stdin,
            (self.top / "stdout").open("ab") as stdout,
            (self.top / f"stderr{number}").open("ab") as stderr,
        ):
            return start(
                *command, *flags, *words,
                environ=environ, cwd=self.cwd, stdin=stdin, stdout=stdout, stderr=stderr,
            )  # fmt: skip

    @property
    def stdout(self) -> str:
        return (self.top / "stdout").read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return "".join(file.read_text(errors="replace") for file in self.top.glob("stderr*"))

    def lines(self) -> list[str]:
        """What was printed, without prefixes of ranks, paths of this launch, times and gaps."""
        said = PREFIX.sub("", self.stdout).replace(str(self.cwd), "{dir}")
        return sorted(filter(None, TIMES.sub("", said).splitlines()))

    def end(self) -> None:
        """Nobody of the launch lives on."""
        for pid in processes_with(self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def placed(top: Path) -> Iterator[Place]:
    place = Place(top)
    try:
        yield place
    finally:
        place.end()


def come_both(program: Program, top: Path) -> tuple[Came, Came]:
    """What comes of it under torchrun, where no line is torn, and under spawnlaunch.

    torchrun's workers write a line's words and its end by several calls, between which another's
    may come. Where only ends are late, the lines are known; else it is run again.
    """
    ours = come(program, SPAWNLAUNCH, top / SPAWNLAUNCH)
    for number in range(TRIES):
        theirs = come(program, TORCHRUN, top / f"{TORCHRUN}{number}")
        theirs = theirs._replace(lines=_parted(theirs.lines, ours.lines))
        both = (theirs.lines, ours.lines)
        if theirs.lines == ours.lines or len({"".join(sorted("".join(x))) for x in both}) > 1:
            break
    return theirs, ours


def _parted(torn: list[str], whole: list[str]) -> list[str]:
    """The lines of `torn`, where one that begins with lines of `whole` is several."""
    found = []
    for line in torn:
        rest = line
        while rest not in whole and (firsts := [each for each in whole if rest.startswith(each)]):
            found.append(max(firsts, key=len))
            rest = rest.removeprefix(found[-1])
        found.append(rest)
    return sorted(filter(None, found))


def come(program: Program, launcher: str, top: Path) -> Came:
    """What comes of it under a launcher, when gloo has let it live."""
    for number in range(TRIES):
        with placed(top / str(number)) as place:
            with nothing_left_behind(place.mark):
                launch = place.start(launcher, program)
                try:
                    code = launch.wait(ENOUGH_S[launcher])
                except subprocess.TimeoutExpired:
                    place.end()
                    if launcher == SPAWNLAUNCH or number == TRIES - 1:
                        raise
                    continue
            came = Came(code, place.lines(), _files(place.cwd, program.varying))
            if launcher == SPAWNLAUNCH:
                left = [each.name for each in place.tmp.glob("spawnlaunch-*")]
                assert not left, f"{program} has left {left}"
            said = place.stderr
        if GLOO not in said and not ENDED.search(said):
            break
    if code and not program.status:
        print(said[-3000:], file=sys.stderr)
    return came


def _files(cwd: Path, varying: Mapping[str, str]) -> dict[str, str]:
    """By name the text, or of what is long or no text, a digest; "" where it varies."""
    found = {}
    for file in sorted(cwd.rglob("*")):
        if file.is_file():
            name = file.relative_to(cwd)
            varies = any(name.match(pattern) or name.parts[0] == pattern.removesuffix("/*")
                         for pattern in varying)  # fmt: skip
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            found[str(name)] = "" if varies else digest
    if ERROR in found:
        message = json.loads((cwd / ERROR).read_text())["message"]
        found[ERROR] = message["message"] if isinstance(message, dict) else message
    return found


def differences(theirs: Came, ours: Came) -> list[str]:
    """Which of the status, the lines and the files are not the same."""
    return [name for name in Came._fields if getattr(theirs, name) != getattr(ours, name)]
