"""A Python that a test starts becomes a fork of this process: it has the changed functions.

In place of a new one that reads and imports all, the child of `subprocess.Popen` runs the launcher,
or the lines behind -c, once its streams, directory, group and environment are as they were asked
for.
"""

import faulthandler
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

LAUNCHER = [sys.executable, "-m", "spawnlaunch"]
AT_FIRST: list[Callable[[], None]] = []  # what any child of a fork does first

_start = subprocess.Popen.__init__


def install() -> None:
    """From now on."""
    os.register_at_fork(after_in_child=lambda: [at_first() for at_first in AT_FIRST])
    subprocess.Popen.__init__ = _started  # type: ignore[method-assign, assignment]


def _started(self: subprocess.Popen[Any], args: Any, *others: Any, **options: Any) -> None:
    words = [*map(str, args)] if isinstance(args, (list, tuple)) else []
    is_ours = words[:3] == LAUNCHER or (words[:2] == [sys.executable, "-c"] and len(words) > 2)
    if is_ours and not others and not options.get("preexec_fn"):
        environ, kept = options.get("env") or dict(os.environ), options.get("pass_fds", ())
        is_closing = options.get("close_fds", True)
        options["preexec_fn"] = lambda: _become(words, environ, kept if is_closing else None)
    _start(self, args, *others, **options)


def _become(words: list[str], environ: Mapping[str, str], kept: Any) -> None:
    """Run the program in this child, which so never comes to its exec."""
    status = 1
    try:
        _close(kept)
        faulthandler.disable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(environ)
        streams = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
        for fd, (name, mode) in enumerate(streams):
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115
        sys.argv, sys.orig_argv = words[2:], words
        sys.path.insert(0, os.getcwd())
        if words[1] == "-m":
            from spawnlaunch.__main__ import launch

            sys.exit(launch())
        else:
            sys.argv = ["-c", *words[3:]]
            exec(compile(words[2], "<string>", "exec"), {"__name__": "__main__"})
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _close(kept: Any) -> None:
    """What an exec would: all that is not to be inherited, and what Popen was not told to keep."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if (fd > 2 and not os.get_inheritable(fd)) or (
                fd > 2 and kept is not None and fd not in kept
            ):
                os.close(fd)
        except OSError:
            pass  # it was that of the listing
