"""A worker that writes down what it has: environment, arguments, paths, streams; then it acts.

It files that in $PROBE_OUT, as RESTART.RANK.json, and says one line on each stream. $PROBE_DO says
what it does then, one thing or several with a semicolon between; `1:` before one means rank 1, and
`@0` behind it the first attempt only.

    exit N   kill N   raise   record   sleep N   family N   reduce [tcp]
"""

import json
import os
import signal
import stat
import subprocess
import sys
import time

RANK = os.environ.get("RANK", "0")
RESTART = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
NOTED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
BASE = os.path.join(os.environ["PROBE_OUT"], f"{RESTART}.{RANK}")


def kind(fd):
    """What a stream is: two launchers differ in pipes and files, not in the null device."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return "closed"
    if stat.S_ISCHR(mode):
        return "terminal" if os.isatty(fd) else "device"
    return "pipe or file"


def told():
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return {
        "environ": dict(os.environ),
        "argv": sys.argv,
        "cwd": os.getcwd(),
        "path": sys.path,
        "main": {
            "name": main.__name__,
            "file": getattr(main, "__file__", None),
            "package": main.__package__,
            "spec": spec and spec.name,
        },
        "executable": sys.executable,
        "unbuffered": bool(getattr(sys.stdout, "write_through", False)),
        "streams": [kind(0), kind(1), kind(2)],
        "is session leader": os.getsid(0) == os.getpid(),
        "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "ignored": [n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN],
        "nice": os.nice(0),
        "umask": oct(os.umask(0o22)),
    }


def hold_signals():
    """Catch these, and let them wait until they are asked for.

    A handler that notes them could be interrupted by the next one before it has noted its own.
    """
    for signum in NOTED:
        signal.signal(signum, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, NOTED)


def note_signals(seconds):
    deadline = time.monotonic() + seconds
    while found := signal.sigtimedwait(NOTED, max(deadline - time.monotonic(), 0)):
        with open(f"{BASE}.signals", "a") as file:
            file.write(f"{signal.Signals(found.si_signo).name}\n")
        if found.si_signo == signal.SIGTERM:
            sys.exit(5)


def wait_for_all():
    """Until all ranks of this node have filed theirs: a failure of one could be another's end."""
    first = int(RANK) - int(os.environ["LOCAL_RANK"])
    ranks = range(first, first + int(os.environ["LOCAL_WORLD_SIZE"]))
    files = [os.path.join(os.environ["PROBE_OUT"], f"{RESTART}.{rank}.json") for rank in ranks]
    deadline = time.monotonic() + 60
    while not all(map(os.path.exists, files)) and time.monotonic() < deadline:
        time.sleep(0.01)


def main():
    report = told()
    with open(f"{BASE}.tmp", "w") as file:
        json.dump(report, file)
    print(f"out of {RANK}", flush=True)
    print(f"err of {RANK}", file=sys.stderr, flush=True)
    deeds = os.environ.get("PROBE_DO", "")
    if "sleep" in deeds:
        hold_signals()
    os.rename(f"{BASE}.tmp", f"{BASE}.json")
    if deeds:
        wait_for_all()
    for deed in filter(None, deeds.split(";")):
        who, colon, what = deed.rpartition(":")
        what, _, when = what.partition("@")
        if (not colon or who == RANK) and (not when or when == RESTART):
            act(*what.split())


def act(what, number="0"):
    DEEDS[what](number)


def fail(_):
    raise ValueError("bad luck")


def record(_):
    from torch.distributed.elastic.multiprocessing.errors import record

    record(lambda: fail(_))()


def family(number):
    code = f"import time; time.sleep({number}); open({BASE!r} + '.family', 'w').close()"
    subprocess.Popen([sys.executable, "-c", code])


def reduce(where):
    """With all ranks, who meet by env:// or, with the word tcp, by the same address in tcp://."""
    import torch
    import torch.distributed as dist

    address = "tcp://{MASTER_ADDR}:{MASTER_PORT}".format(**os.environ)
    size = int(os.environ["WORLD_SIZE"])
    by_tcp = {"init_method": address, "rank": int(RANK), "world_size": size}
    dist.init_process_group("gloo", **(by_tcp if where == "tcp" else {}))
    one = torch.ones(1)
    dist.all_reduce(one)
    with open(f"{BASE}.sum", "w") as file:
        file.write(str(one.item()))
    dist.destroy_process_group()


DEEDS = {
    "exit": lambda number: sys.exit(int(number)),
    "kill": lambda number: os.kill(os.getpid(), int(number)),
    "raise": fail,
    "record": record,
    "sleep": lambda number: note_signals(float(number) or 600),
    "family": family,
    "reduce": reduce,
}


if __name__ == "__main__" or os.environ.get("PROBE_IMPORTED"):
    main()
