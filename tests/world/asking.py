"""Ask the workers of a real Slurm what they were told."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.cluster.slurm import Slurm
from tests.support.launching import filed_reports


class Told(NamedTuple):
    """What a command's workers reported, in the order of the ranks, and what was printed."""

    workers: list[dict]
    status: int
    stdout: str
    stderr: str


class Asker:
    """Runs commands on a cluster, with a directory for each to report to."""

    def __init__(self, slurm: Slurm, directory: Path) -> None:
        self.slurm = slurm
        self._directory = directory
        self._asked = 0

    def run(self, command: Sequence[object], **environ: str) -> Told:
        files = self.new_directory()
        done = self.slurm.run(list(command), env={"REPORT_DIR": str(files), **environ})
        return Told(filed_reports(files), done.returncode, done.stdout, done.stderr)

    def sbatch(self, script: str, *options: str) -> Told:
        files = self.new_directory()
        job = self.slurm.sbatch(script, *options, env={"REPORT_DIR": str(files)})
        return Told(filed_reports(files), job.exit_status, job.output, job.output)

    def typed(self, line: str, *options: str) -> Told:
        """The line typed at the prompt of a shell that `srun OPTIONS --pty` has started."""
        files = self.new_directory()
        shell = f"srun {shlex.join(options)} --pty bash --norc -i"
        prompt = ["script", "-qec", shell, "/dev/null"]
        done = self.slurm.run(
            prompt, stdin=f"{line} < /dev/null; exit $?\n", env={"REPORT_DIR": str(files)}
        )
        return Told(filed_reports(files), done.returncode, done.stdout, done.stdout)

    def new_directory(self) -> Path:
        self._asked += 1
        files = self._directory / str(self._asked)
        files.mkdir()
        return files


def line_behind(words: str, error: str) -> str:
    """The line that stands there, up to what comes behind it."""
    ended = r"(?: \(where|; or|\r?$)"
    (found,) = set(re.findall(rf"{re.escape(words)} (.*?){ended}", error, re.MULTILINE))
    return found
