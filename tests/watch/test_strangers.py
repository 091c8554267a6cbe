"""Strangers at the port where the tasks of a step meet for `top`: they are not heard."""

import json
import socket
import time
from contextlib import ExitStack

from spawnlaunch.watch.step import CLOCKS, Seen, Step, receive

STEP = Step("1.0", True, "a", ("a", "b"), "a", {})
ANSWER = {"looks": [], "calls": [], "whole": True, "when": 0}
TOLD = {
    "job": "1.0", "node": "b", "now": 0.0, "later_ns": 0, "uncertain_s": 0.0, "samples": [],
    "answers": {"7.0": {"1": {**ANSWER, "members": {}}}},
}  # fmt: skip
STRANGE = [
    *(b"", b"nonsense", b"\xff", b"[" * 100_000, b"9" * 5000, b"[]", b"null", b'{"job": "1.0"}'),
    *(json.dumps({**TOLD, name: value}).encode()
      for name, value in [("now", 10**400), ("now", []), ("node", []), ("node", "c"),
                          ("samples", 7), ("samples", [7]), ("samples", [[]]), ("later_ns", ""),
                          ("uncertain_s", {}), ("uncertain_s", float("inf")),
                          ("uncertain_s", float("nan")),
                          ("answers", {"7.0": {"1": {**ANSWER, "members": {"0": [[]]}}}}),
                          ("answers", 1), ("answers", {"7.0": {"x": 1}}),
                          ("answers", {"7.0": {"1": {"looks": [[1, [[]]]]}}})]),
]  # fmt: skip


def test_what_is_no_sample_is_passed_over() -> None:
    found = {"a": Seen([], {})}
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        here = listening.getsockname()
        for said in (*STRANGE, json.dumps({**TOLD, "now": time.monotonic()}).encode()):
            sock = stack.enter_context(socket.create_connection(here))
            sock.sendall(b"?" * CLOCKS + said)
            sock.shutdown(socket.SHUT_WR)
        receive(STEP, listening, found)
    assert found.keys() == {"a", "b"}
    assert found["b"].answers.keys() == {"7.0"}
