"""torchrun for many command lines: torch is imported once, and each line runs in a fork of that.

On stdin it reads a line of JSON for each launch: words, environ, cwd, stdin, stdout and stderr
(files), and which of the programs. On stdout it writes a line of JSON when one has started, and
another when it has ended: [its number, pid] and [its number, pid, status as waitpid(2) has it].
"""

import importlib
import json
import os
import select
import signal
import sys
import tempfile

PROGRAMS = {
    "torchrun": "torch.distributed.run",
    "launch": "torch.distributed.launch",
    "call": "tests.torch_suite.agent",
}


def become(order):
    """In the fork: what the order says, and then the program."""
    os.setsid()
    for signum in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(order["cwd"])
    os.environ.clear()
    tempfile.tempdir = None  # of the environment that is to come
    os.environ.update(order["environ"])
    for fd, (name, flags) in enumerate(
        [(order["stdin"], os.O_RDONLY)]
        + [(order[key], os.O_WRONLY | os.O_CREAT | os.O_APPEND) for key in ("stdout", "stderr")]
    ):
        opened = os.open(name, flags, 0o644)
        os.dup2(opened, fd)
        os.close(opened)
    program = PROGRAMS[order["program"]]
    sys.argv = [program, *order["words"]]
    importlib.import_module(program).main()


def fork(order):
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        become(order)
        status = 0
    except SystemExit as end:
        code = end.code
        status = code if isinstance(code, int) else 0 if code is None else 1
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main():
    import torch.distributed.elastic.agent.server.local_elastic_agent
    import torch.distributed.elastic.rendezvous.registry
    import torch.distributed.launcher.api
    import torch.distributed.run  # noqa: F401

    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    numbers = {}
    unread = b""
    print(json.dumps(["ready"]), flush=True)
    while True:
        ready, _, _ = select.select([0, awake], [], [])
        if awake in ready:
            os.read(awake, 4096)
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                return
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                pid = fork(order)
                numbers[pid] = order["number"]
                print(json.dumps([order["number"], pid]), flush=True)
        while numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            print(json.dumps([numbers.pop(pid), pid, status]), flush=True)


if __name__ == "__main__":
    main()
