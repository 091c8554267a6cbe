"""Ask what a process knows of those above it, in a fork of this one."""

import json
import os
import pty
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOREVER_S = "1000000"


def below(
    name: str,
    ask: Callable[[], Any],
    directory: Path,
    *,
    title: str = "",
    own_group: bool = False,
    terminal: int | None = None,
) -> Any:
    """What `ask` returns, in JSON, in the child of a process called `name`.

    That one leads a session, and `title` is its command line. The child has a group of its own, or
    is in its group, and has a terminal as this descriptor, else none.
    """
    program = directory / name
    if not program.exists():
        program.symlink_to("/bin/sleep")
    reading, writing = os.pipe()
    above = os.fork()
    if above == 0:
        os.setsid()
        if os.fork() == 0:
            _answer(title or name, ask, writing, terminal, own_group)
        os.execv(program, [title or name, FOREVER_S])
    os.close(writing)
    with os.fdopen(reading) as told:
        answer = told.read()
    os.kill(above, 9)
    os.waitpid(above, 0)
    return json.loads(answer)


def _answer(
    title: str, ask: Callable[[], Any], writing: int, terminal: int | None, own_group: bool
) -> None:
    try:
        while Path(f"/proc/{os.getppid()}/cmdline").read_text() != f"{title}\0{FOREVER_S}\0":
            pass  # it is on its way to its exec, which names it before it shows its command line
        if own_group:
            os.setpgid(0, 0)
        for fd in (0, 1):
            os.dup2(pty.openpty()[1] if fd == terminal else os.open(os.devnull, os.O_RDWR), fd)
        os.write(writing, json.dumps(ask()).encode())
    finally:
        os._exit(0)
