"""The names of all variables that the launcher reads, taken from its code."""

import re
from pathlib import Path

from spawnlaunch.cli import parsing, torchrun
from tests.support.launching import FOREIGN

HERE = Path(parsing.__file__).parent.parent
HET_GROUPS = [f"SLURM_JOB_NODELIST_{word}_GROUP_{i}" for word in ("HET", "PACK") for i in (0, 1)]


def variables(package: Path) -> list[str]:
    """The names of variables that stand as constants in the modules of a package."""
    quoted = re.compile(r'"([A-Z][A-Z0-9]*(?:_\w+)?)["{]')
    return sorted(
        {*HET_GROUPS, *(n for p in package.rglob("*.py") for n in quoted.findall(p.read_text()))}
    )


NAMES = sorted(
    {
        *variables(HERE / "world"),
        *map(torchrun.variable, torchrun.TORCHRUN),
    }
)
# Read outside of world. Where Python, the loader or a shell read them too, they are left alone.
OTHERS = [
    name
    for name in variables(HERE)
    if name.startswith((*FOREIGN, "CUDA_", "ROCR_", "HIP_", "GPU_", "ZE_", "NCCL_", "GLOO_"))
]
