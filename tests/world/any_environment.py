"""Environments that are drawn: all that a manager or two need, and anything beside it."""

import os
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.support.texts import TEXTS, slips
from tests.world.recorded import MANAGERS
from tests.world.variables import NAMES, OTHERS

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
FILES = ["{directory}/f1", "{directory}/f2"]
CONTENTS: list[bytes | str] = [
    *(b"", b"\n\n", b"\xff\xfe\x00", b" \t\n# x\n", b"*,[\n", b"node0\nnode1\n", b"node0 2 q\n"),
    *(b"rank 0=node0 slot=0-1\n", b"node0*999999999\n", b"9" * 5000, b"[" * 100000),
    *("fifo", "directory", "unreadable"),
]
_PLAUSIBLE = st.integers(0, 5).map(str) | st.sampled_from(HOSTS) | st.sampled_from(COUNTS)
_PATHS = st.sampled_from([*FILES, "/dev/zero", "/", "/nowhere"])
_VALUES = _PLAUSIBLE | _PLAUSIBLE | slips(_PLAUSIBLE) | _PATHS | TEXTS


class Case(NamedTuple):
    """Flags and an environment. A file of one's own is {directory}/NAME, and made for each."""

    words: list[str]
    environ: dict[str, str]
    files: dict[str, bytes | str]  # by name: what is in it, or "fifo", "directory", "unreadable"


@st.composite
def cases(draw: DrawFn) -> Case:
    """Any flags and environment that world reads, mostly readable."""
    environ = {}
    for manager in draw(st.lists(st.sampled_from(MANAGERS), max_size=2)):
        environ |= {name: draw(_PLAUSIBLE) for name in manager.needs}
    names = st.sampled_from(NAMES) | st.sampled_from([*NAMES, *OTHERS])
    environ |= draw(st.dictionaries(names, _VALUES, max_size=12))
    words = draw(st.lists(st.sampled_from(FLAGS), max_size=4, unique=True))
    named = {value.rpartition("/")[2] for value in environ.values() if value in FILES}
    return Case(words, environ, {name: draw(st.sampled_from(CONTENTS)) for name in sorted(named)})


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
