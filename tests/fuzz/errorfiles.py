"""Error files of workers: words to show or none, whatever stands in them."""

import json
import os
import tempfile
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from spawnlaunch.failures import Cause
from spawnlaunch.run import report
from spawnlaunch.run.launches import WorkerExit
from tests.fuzz.engine import Subject, once_in
from tests.fuzz.values import slip

TEXTS = ["", "it is bad", "Traceback ...\nValueError: bad", "\udcff", "\0\x1b[2J", "x" * 100000]
ODD: list[Any] = [None, 7, -1.5, float("nan"), float("inf"), True, [], {}, 10**400, [[]], {"": 1}]
NAMES = ["message", "extraInfo", "py_callstack", "timestamp", "errorCode", "other"]
BYTES = [
    *(b"", b"\0", b"\xff" * 100, b'{"message": "', b"[" * 100000, b'{"a":' * 100000, b"9" * 100000),
    *(b'{"message": NaN}', b'{"message": "\\ud800"}', b'"\\ud800"', b"null", b"\xef\xbb\xbf{}"),
    *(b'{"message": {"message": "a", "message": 1e999}}', b'{"message": ' + b"9" * 5000 + b"}"),
    b'{"message": "' + b"\\u0000" * 100000 + b'"}',
]
KINDS = [*5 * ["file"], "fifo", "directory", "missing", "zero", "unreadable"]


class Case(NamedTuple):
    """What a worker has left."""

    kind: str  # of file
    content: bytes
    stderr: bytes | None


def draw(random: Random) -> Case:
    content = random.choice(BYTES) if once_in(random, 3) else as_json(random, record(random))
    if once_in(random, 4):
        content = slip(random, content.decode("latin-1")).encode("latin-1", "replace")
    if once_in(random, 10):
        content = random.randbytes(random.randint(0, 300))
    stderr = random.choice([None, b"", b"last words\n", random.randbytes(200), b"x" * 100000])
    return Case(random.choice(KINDS), content, stderr)


def as_json(random: Random, value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=once_in(random, 2)).encode("utf-8", "surrogatepass")


def record(random: Random) -> Any:
    """Like the one that torch writes, with whatever else in its places."""
    inner = {name: anything(random, 2) for name in random.sample(NAMES, random.randint(0, 5))}
    if once_in(random, 2):
        inner["extraInfo"] = {name: anything(random, 1) for name in random.sample(NAMES, 3)}
    return random.choice([{"message": inner}, inner, [inner], anything(random, 3)])


def anything(random: Random, depth: int) -> Any:
    if depth and once_in(random, 4):
        return {random.choice(NAMES): anything(random, depth - 1) for _ in range(3)}
    return random.choice([random.choice(TEXTS), random.choice(TEXTS), random.choice(ODD)])


def judge(case: Case) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path, stderr = Path(directory, "error.json"), Path(directory, "stderr.log")
        make(path, case)
        if case.stderr is not None:
            stderr.write_bytes(case.stderr)
        failure = WorkerExit(0, 0, 1, 1, 0.0, 0, str(path), str(stderr))
        words = report.last_words(failure)
        assert words is None or isinstance(words, str)
        assert words is None or len(words) <= 2 * max(len(case.content), len(case.stderr or b""))
        copied = Path(directory, "copied.json")
        report.copy_error_file(Cause("failure", code=1), failure, str(copied))
        assert isinstance(json.loads(copied.read_text()), dict)


def make(path: Path, case: Case) -> None:
    if case.kind == "fifo":
        os.mkfifo(path)
    elif case.kind == "directory":
        path.mkdir()
    elif case.kind == "zero":
        path.symlink_to("/dev/zero")
    elif case.kind != "missing":
        path.write_bytes(case.content)
        path.chmod(0 if case.kind == "unreadable" else 0o600)


ERRORFILES = Subject(draw, judge)
