"""Ask the workers of a real Slurm what they were told."""

import re
import shlex
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.cluster.slurm import Slurm
from tests.support.launching import filed_reports
from tests.support.truth import Report


class Result(NamedTuple):
    """What a command's workers reported, in the order of the ranks, and what was printed."""

    workers: list[Report]
    status: int
    stdout: str
    stderr: str

    def steps(self) -> list[list[Report]]:
        """The workers of each step of a job, in the order in which the steps were started."""
        found = defaultdict(list)
        for worker in self.workers:
            environ = worker["environ"]
            found[int(environ["SLURM_JOB_ID"]), int(environ["SLURM_STEP_ID"])].append(worker)
        return [found[step] for step in sorted(found)]

    def values(self, *names: str) -> list[tuple[str, ...]]:
        """These variables of each worker."""
        return [tuple(each["environ"].get(name, "") for name in names) for each in self.workers]


class Asker:
    """Runs commands on a cluster, with a directory for each to report to."""

    def __init__(self, slurm: Slurm, directory: Path) -> None:
        self.slurm = slurm
        self._directory = directory
        self._asked = 0

    def run(self, command: Sequence[object], **environ: str) -> Result:
        """What comes of a command that is typed on the head node."""
        files = self.new_directory()
        done = self.slurm.run(list(command), env={"REPORT_DIR": str(files), **environ})
        return Result(filed_reports(files), done.returncode, done.stdout, done.stderr)

    def sbatch(self, script: str, *options: str) -> Result:
        """What comes of a batch script, whose output is given as both streams."""
        files = self.new_directory()
        text = f"#!/bin/bash\n{script}\n"
        job = self.slurm.sbatch(text, *options, env={"REPORT_DIR": str(files)})
        return Result(filed_reports(files), job.exit_status, job.output, job.output)

    def typed(self, line: str, *options: str) -> Result:
        """The line typed at the prompt of a shell that `srun OPTIONS --pty` has started."""
        files = self.new_directory()
        shell = f"srun {shlex.join(options)} --pty bash --norc -i"
        prompt = ["script", "-qec", shell, "/dev/null"]
        done = self.slurm.run(
            prompt, stdin=f"{line} < /dev/null; exit $?\n", env={"REPORT_DIR": str(files)}
        )
        return Result(filed_reports(files), done.returncode, done.stdout, done.stdout)

    def new_directory(self) -> Path:
        """An empty directory for reports."""
        self._asked += 1
        files = self._directory / str(self._asked)
        files.mkdir()
        return files


def line_after(words: str, error: str) -> str:
    """The command line that an error shows after these words."""
    ended = r"(?: \(where|; or|\r?$)"
    (found,) = set(re.findall(rf"{re.escape(words)} (.*?){ended}", error, re.MULTILINE))
    return found
