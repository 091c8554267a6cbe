"""Error files of workers: words to show or none, whatever stands in them."""

import json
import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.outcome import endings
from spawnlaunch.outcome.failures import Cause, WorkerExit
from tests.support.answers import bounded
from tests.support.examples import examples, nightly

BYTES = [
    *(b"", b"\0", b"\xff" * 100, b'{"message": "', b"[" * 100000, b'{"a":' * 100000, b"9" * 100000),
    *(b'{"message": NaN}', b'{"message": "\\ud800"}', b'"\\ud800"', b"null", b"\xef\xbb\xbf{}"),
    *(b'{"message": {"message": "a", "message": 1e999}}', b'{"message": ' + b"9" * 5000 + b"}"),
    b'{"message": "' + b"\\u0000" * 100000 + b'"}',
]
KINDS = [*5 * ["file"], "fifo", "directory", "missing", "zero", "unreadable"]
TEXTS = ["", "it is bad", "Traceback ...\nValueError: bad", "\udcff", "\0\x1b[2J", "x" * 100000]
NAMES = ["message", "extraInfo", "py_callstack", "timestamp", "errorCode", "other"]
LEAVES = (
    st.sampled_from(TEXTS) | st.none() | st.booleans() | st.integers() | st.floats()
    | st.just(10**400)
)  # fmt: skip
FIELDS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=12,
)
# Like the one that torch writes, with whatever else in its places.
RECORDS = st.dictionaries(st.sampled_from(NAMES), FIELDS, max_size=5)
DOCUMENTS = RECORDS.map(lambda inner: {"message": inner}) | RECORDS | FIELDS
CONTENTS = (
    st.sampled_from(BYTES)
    | st.binary(max_size=300)
    | DOCUMENTS.map(lambda value: json.dumps(value, ensure_ascii=False)).map(
        lambda text: text.encode("utf-8", "surrogatepass")
    )
    | DOCUMENTS.map(lambda value: json.dumps(value).encode())
)
STDERRS = st.sampled_from([None, b"", b"last words\n", b"x" * 100000]) | st.binary(max_size=200)


def make(path: Path, kind: str, content: bytes) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind != "missing":
        path.write_bytes(content)
        path.chmod(0 if kind == "unreadable" else 0o600)


def is_shown_or_passed_by(kind: str, content: bytes, stderr: bytes | None) -> None:
    with tempfile.TemporaryDirectory() as directory, bounded():
        path, log = Path(directory, "error.json"), Path(directory, "stderr.log")
        make(path, kind, content)
        if stderr is not None:
            log.write_bytes(stderr)
        failure = WorkerExit(0, 0, 1, 1, 0.0, 0.0, (0.0, 0.0), 0, str(path), str(log))
        words = endings.last_words(failure)
        assert words is None or isinstance(words, str)
        assert words is None or len(words) <= 2 * max(len(content), len(stderr or b""))
        copied = Path(directory, "copied.json")
        endings.copy_error_file(Cause("failure", code=1), failure, str(copied))
        assert isinstance(json.loads(copied.read_text()), dict)


LEFT = given(st.sampled_from(KINDS), CONTENTS, STDERRS)
test_any_error_file_is_shown_or_passed_by = examples(150, 1000)(LEFT(is_shown_or_passed_by))
test_thousands_of_error_files = nightly(LEFT(is_shown_or_passed_by))
