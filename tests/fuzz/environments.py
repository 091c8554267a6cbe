"""Environments: a world that makes sense, or one line that says what to type."""

import json
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from spawnlaunch import cli
from spawnlaunch.errors import UsageError
from spawnlaunch.torchrun import names as of_torchrun
from spawnlaunch.torchrun.variables import variable
from spawnlaunch.world.identity import Capacity, Resolution
from spawnlaunch.world.resolve import resolve_world
from tests.fuzz.engine import Subject, explained, once_in, plain_line, some
from tests.fuzz.values import slip, text
from tests.support.launching import FOREIGN, REPORTER
from tests.world.recorded import MANAGERS

HERE = Path(cli.__file__).parent
HET_GROUPS = [f"SLURM_JOB_NODELIST_{word}_GROUP_{i}" for word in ("HET", "PACK") for i in (0, 1)]
HOSTS = [
    *("node0", "node[0-1]", "node[0-3],login", "node[0-", "a[1-3]b[2,4]", "x[1-999999999999]"),
    *("localhost", "node1", "node[0-999999999]", "node0,node0"),
]
COUNTS = ["1", "2", "2(x2)", "1(x1000000000)", "2,1", "2(x", "1000-1003", "arbitrary", "True"]
FLAGS = [
    *("--nproc=2", "--nproc=auto", "--nnodes=2", "--nnodes=1", "--node-rank=0", "--node-rank=1"),
    *("--master-addr=node0", "--master-port=0", "--master-port=23456", "--rdzv-endpoint=node0:0"),
    *("--rdzv-endpoint=node0", "--world-size=4", "--local-world-size=2", "--standalone"),
    *("--master-suffix=i", "--virtual-local-rank", "--rewrite-slurm-env"),
]
CONTENTS = [
    *(b"", b"\n\n", b"\xff\xfe\x00", b" \t\n# x\n", b"*,[\n", b"node0\nnode1\n", b"node0 2 q\n"),
    *(b"rank 0=node0 slot=0-1\n", b"node0*999999999\n", b"9" * 5000, b"[" * 100000),
]


def variables(package: Path) -> list[str]:
    """The names of variables that stand as constants in the modules of a package."""
    quoted = re.compile(r'"([A-Z][A-Z0-9]*(?:_\w+)?)["{]')
    return sorted(
        {*HET_GROUPS, *(n for p in package.rglob("*.py") for n in quoted.findall(p.read_text()))}
    )


NAMES = sorted(
    {
        *variables(HERE / "world"),
        *(name for name in variables(HERE / "torchrun") if name.startswith("TORCH")),
        *map(variable, of_torchrun.TORCHRUN),
    }
)
# Read outside of world. Where Python, the loader or a shell read them too, they are left alone.
OTHERS = [
    name
    for name in variables(HERE)
    if name.startswith((*FOREIGN, "CUDA_", "ROCR_", "HIP_", "GPU_", "ZE_", "NCCL_", "GLOO_"))
]


class Case(NamedTuple):
    """Flags and an environment. A file of one's own is {directory}/NAME, and made for each."""

    words: list[str]
    environ: dict[str, str]
    files: dict[str, bytes | str]  # by name: what is in it, or "fifo", "directory", "unreadable"


def draw(random: Random) -> Case:
    """All that a manager or two need, mostly readable, and anything beside it."""
    environ = {}
    for manager in some(random, MANAGERS, 2):
        environ |= {name: plausible(random) for name in manager.needs}
    for name in some(random, [*NAMES, *OTHERS] if once_in(random, 3) else NAMES, 12):
        environ[name] = value(random)
    words = sorted({random.choice(FLAGS) for _ in range(random.randint(0, 4))})
    kinds: list[bytes | str] = [*CONTENTS, "fifo", "directory", "unreadable"]
    named = {v.rpartition("/")[2] for v in environ.values() if v.startswith("{directory}/f")}
    return Case(words, environ, {name: random.choice(kinds) for name in sorted(named)})


def plausible(random: Random) -> str:
    return random.choice([str(random.randint(0, 5)), random.choice(HOSTS), random.choice(COUNTS)])


def value(random: Random) -> str:
    kind = random.randrange(8)
    if kind < 4:
        return plausible(random)
    if kind == 4:
        return slip(random, plausible(random)).replace("\0", "")
    if kind == 5:
        return random.choice(["{directory}/f1", "{directory}/f2", "/dev/zero", "/", "/nowhere"])
    return text(random)


def judge(case: Case) -> None:
    with tempfile.TemporaryDirectory() as directory:
        judge_world(case.words, made(case, directory))


def judge_world(words: list[str], environ: Mapping[str, str]) -> None:
    try:
        found = resolve(words, environ)
    except UsageError as error:
        line = str(error)
        plain_line(line)
        assert "type " in line or "unset " in line or "leave " in line, line
        return
    me = found.world
    assert me.mode in ("task", "node", "local")
    assert 0 <= me.rank < me.world_size
    assert 0 <= me.local_rank < me.local_world_size <= me.world_size
    assert me.nnodes is None or me.nnodes <= me.world_size
    assert None in (me.node_rank, me.nnodes) or 0 <= me.node_rank < me.nnodes
    assert me.master_addr
    is_free = me.mode == "local" or found.gathering is not None
    assert 0 < me.master_port < 65536 or (is_free and me.master_port == 0)
    of_roles = {"role_rank", "role_world_size"}  # known once the launchers have met
    told = {name: value for name, value in me._asdict().items() if name not in of_roles}
    assert told == {name: fact.value for name, fact in found.sources.items()}
    json.dumps([*found.sources.values(), *found.warnings])


def resolve(words: list[str], environ: Mapping[str, str]) -> Resolution:
    request = cli.parse([*words, str(REPORTER)], environ, "python")
    return resolve_world(request, environ, "node1.cluster", Capacity(devices=0, cpus=2))


def made(case: Case, directory: str) -> dict[str, str]:
    """Make the files in the directory; the result is the environment that names them there."""
    for name, content in case.files.items():
        path = Path(directory, name)
        if content == "fifo":
            os.mkfifo(path)
        elif content == "directory":
            path.mkdir()
        else:
            path.write_bytes(b"node0\n" if isinstance(content, str) else content)
            path.chmod(0 if content == "unreadable" else 0o600)
    return {k: v.replace("{directory}", directory) for k, v in case.environ.items()}


def judge_real(case: Case) -> None:
    with tempfile.TemporaryDirectory() as directory, suppress(UnicodeEncodeError):
        environ = made(case, directory)
        fits = all(len(os.fsencode(v)) < 1 << 17 for v in environ.values())
        if fits:
            explained([*case.words, str(REPORTER)], environ)


ENVIRONMENTS = Subject(draw, judge, judge_real)
