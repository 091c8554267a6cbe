"""Launch in the way that is asked for, twice in this process, and say what has changed in it.

caller.py WAY WORD...
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import threading


def state() -> dict[str, object]:
    handlers = [signal.getsignal(n) for n in signal.valid_signals()]
    try:
        children = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        children = None
    return {
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "handlers": handlers,
        "gc": gc.isenabled(),
        "path": sys.path[:],
        "finders": sys.meta_path[:],
        "environ": dict(os.environ),
        "directory": os.getcwd(),
        "trace": (sys.gettrace(), sys.getprofile()),
        "threads": threading.active_count(),
        "children": children,
    }


def function() -> None:
    importlib.import_module("spawnlaunch.__main__").main()


def module(name: str = "spawnlaunch") -> None:
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def in_thread() -> None:
    def run() -> None:
        try:
            module()
        except SystemExit as end:
            ended.append(end.code)

    ended: list[object] = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    sys.exit(*ended)


def traced() -> None:
    sys.settrace(lambda *_: None)
    try:
        module()
    finally:
        sys.settrace(None)


WAYS = {
    "module": module,
    "of torch 1": lambda: module("spawnlaunch.distributed_launch"),
    "function": function,
    "thread": in_thread,
    "traced": traced,
}

if __name__ == "__main__":
    way, *words = sys.argv[1:]
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    atexit.register(print, "exit handlers have run")
    importlib.import_module("subprocess")  # it imports signal, which would count
    before, codes = state(), []
    for _ in range(2):
        sys.argv = ["caller.py", *words]
        try:
            WAYS[way]()
        except SystemExit as end:
            codes.append(end.code)
    after = state()
    changed = [name for name in before if before[name] != after[name]]
    print(json.dumps({"codes": codes, "changed": changed}), flush=True)
