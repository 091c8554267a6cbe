"""Scripts that know nothing of this launcher train on two ranks, and agree on the weights."""

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm, require_slurm
from tests.support.launching import GLOO, LAUNCHER, ROOT, clean_environ, launch
from tests.support.patience import PATIENCE_S

require_slurm()

HERE = Path(__file__).parent
# speechbrain finds the stand-in for torchaudio; and nothing is asked of a network.
PATHS = os.pathsep.join([str(ROOT), str(HERE / "stand_in")])
ENVIRONMENT = {"PYTHONPATH": PATHS, "HF_HUB_OFFLINE": "1"}
SAID = re.compile(r"rank (\d) of 2: (\d+) samples, weight (\S+)$", re.MULTILINE)

ABORTED = 128 + signal.SIGABRT

PLAIN = ("plain_ddp.py",)
FOREIGN = (
    ("hf_trainer.py",),
    ("accelerate_loop.py",),
    ("lightning_module.py",),
    ("speechbrain_ddp.py", "hyperparams.yaml", "--distributed_backend=gloo", "--device=cpu"),
)
CLIENTS = [pytest.param(words, id=words[0], marks=pytest.mark.nightly) for words in FOREIGN]


def command(words: Sequence[str]) -> list[str]:
    script, *arguments = words
    return [str(HERE / script), *arguments]


def check(done: subprocess.CompletedProcess[str]) -> None:
    """Both ranks have trained on their halves of 64 samples, and with the same gradients."""
    assert done.returncode == 0, done.stderr
    said = sorted(SAID.findall(done.stdout))
    assert [rank for rank, _, _ in said] == ["0", "1"], done.stdout + done.stderr
    assert {samples for _, samples, _ in said} == {"32"}
    assert len({weight for _, _, weight in said}) == 1


@pytest.mark.parametrize(
    "words", [pytest.param(PLAIN, id=PLAIN[0], marks=pytest.mark.full), *CLIENTS]
)
def test_on_one_machine(words: tuple[str, ...]):
    environ = clean_environ(**ENVIRONMENT)
    done = launch("--nproc", 2, *command(words), environ=environ)
    if done.returncode == ABORTED and GLOO in done.stderr:
        done = launch("--nproc", 2, *command(words), environ=environ)
    check(done)


@pytest.mark.parametrize(
    "words", [pytest.param(PLAIN, id=PLAIN[0], marks=pytest.mark.full), *CLIENTS]
)
def test_as_tasks_on_two_nodes(slurm: Slurm, words: tuple[str, ...]):
    step = ["srun", "-N2", "-n2", *LAUNCHER, *command(words)]
    check(slurm.run(step, env={**ENVIRONMENT, "SLURM_KILL_BAD_EXIT": "1"}, timeout=PATIENCE_S))
