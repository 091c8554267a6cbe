"""Whatever stands in the environment, the end is a world that makes sense, or one line that says
what to type: never a crash."""

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spawnlaunch import cli, world
from spawnlaunch.errors import UsageError
from spawnlaunch.world import detect, inherited
from tests.launching import WORKERS

SCRIPT = str(WORKERS / "report.py")
HET_GROUPS = [f"SLURM_JOB_NODELIST_{word}_GROUP_{i}" for word in ("HET", "PACK") for i in (0, 1)]


def variables_of_world() -> set[str]:
    """The names of variables that stand as constants in the modules of world."""
    modules = [importlib.import_module(f"{world.__name__}.{info.name}") for info in modules_there()]
    constants = [value for module in modules for value in vars(module).values()]
    words = [v for v in constants if isinstance(v, str)]
    words += [w for v in constants if isinstance(v, tuple) for w in v if isinstance(w, str)]
    words += [*inherited.RANKS, "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "GROUP_RANK"]
    words += ["PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", *HET_GROUPS]
    return {word for word in words if re.fullmatch(r"[A-Z][A-Z0-9]*(_\w+)?", word)}


def modules_there() -> Iterator[pkgutil.ModuleInfo]:
    return pkgutil.iter_modules(world.__path__)


NAMES = sorted(variables_of_world())

numbers = st.integers(0, 5).map(str) | st.sampled_from(["128", "00", "4294967290", "9" * 18])
hosts = st.sampled_from(
    ["node0", "node[0-1]", "node[0-3],login", "node[0-", "a[1-3]b[2,4]", "x[1-999999999999]", ","]
)
odd = st.sampled_from(
    [
        *("x", "-1", "²", "٣", "9" * 5000, "1:4", "auto", "2(x2)", "2(x", "1000-1003", "99999"),
        *("\n", "a\nb", " 2 ", "\udcff", "True", "arbitrary", "localhost", "a..b"),
    ]
)
text = st.text(st.characters(exclude_characters="\0", exclude_categories=()), max_size=8)
values = numbers | numbers | hosts | odd | text
managers = st.sampled_from(detect.ORDER)
flags = st.lists(
    st.sampled_from(
        [
            "--nproc=2",
            "--nproc=auto",
            "--nnodes=2",
            "--nnodes=1",
            "--node-rank=0",
            "--node-rank=1",
            "--master-addr=node0",
            "--master-port=0",
            "--master-port=23456",
            "--rdzv-endpoint=node0:0",
            "--rdzv-endpoint=node0",
            "--world-size=4",
            "--local-world-size=2",
            "--standalone",
            "--master-suffix=i",
            "--virtual-local-rank",
        ]
    ),
    max_size=4,
    unique=True,
)


@st.composite
def environments(draw: st.DrawFn) -> dict[str, str]:
    """All that a manager or two need, mostly readable, and anything beside it."""
    environ = {}
    for manager in draw(st.lists(managers, max_size=2)):
        environ |= {name: draw(numbers | hosts) for name in manager.needs}
    return environ | draw(st.dictionaries(st.sampled_from(NAMES), values, max_size=12))


def resolve(words: list[str], environ: Mapping[str, str]) -> world.Resolution:
    request = cli.parse([*words, SCRIPT], environ, "python")
    return world.resolve(
        request, environ, "node1.cluster", lambda nproc: nproc if isinstance(nproc, int) else 2
    )


@settings(max_examples=2000)
@given(environments(), flags)
def test_the_end_is_a_world_or_one_line(environ: dict[str, str], words: list[str]):
    try:
        found = resolve(words, environ)
    except UsageError as error:
        (line,) = str(error).splitlines()
        assert "type " in line or "unset " in line or "leave " in line, line
        return
    me = found.world
    assert me.mode in ("task", "node", "local")
    assert 0 <= me.rank < me.world_size
    assert 0 <= me.local_rank < me.local_world_size <= me.world_size
    assert me.nnodes is None or me.nnodes <= me.world_size
    assert None in (me.node_rank, me.nnodes) or 0 <= me.node_rank < me.nnodes
    assert me.master_addr
    assert 0 < me.master_port < 65536 or (me.mode == "local" and me.master_port == 0)
    assert me._asdict() == {name: fact.value for name, fact in found.sources.items()}
    json.dumps([*found.sources.values(), *found.warnings])


class Recorded(dict[str, str]):
    """An environment that knows which variables it was asked for."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.asked: set[str] = set()

    def get(self, name, default=None):
        self.asked.add(name)
        return super().get(name, default)

    def __getitem__(self, name):
        self.asked.add(name)
        return super().__getitem__(name)

    def __contains__(self, name):
        self.asked.add(name)
        return super().__contains__(name)


@pytest.mark.parametrize("manager", detect.ORDER, ids=lambda manager: manager.name)
def test_no_variable_is_read_that_the_others_do_not_try(manager):
    environ = Recorded(dict.fromkeys(manager.needs, "1"))
    with suppress(UsageError):
        resolve([], environ)
    settings_of_cli = {"PYTHON_EXEC"}
    het = {name for name in environ.asked if re.search(r"_(HET|PACK)_GROUP_\d+$", name)}
    assert environ.asked - {*NAMES, *settings_of_cli, *het} == set()


@pytest.mark.parametrize("where", ["PBS_NODEFILE", "PE_HOSTFILE", "LSB_DJOB_RANKFILE"])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00", b" \t\n# x\n", b"*,[\n"])
def test_any_host_file_is_read_or_refused(where: str, content: bytes, tmp_path: Path):
    file = tmp_path / "hosts"
    file.write_bytes(content)
    environ = {"PBS_JOBID": "1", "JOB_ID": "1", "NSLOTS": "2", "LSB_JOBID": "1"}
    environ |= {where: str(file)}
    with suppress(UsageError):
        resolve(["--nproc=2"], environ)
