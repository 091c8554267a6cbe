"""Troubles that both launchers can have, each with what a user would want of it."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from tests.beside.launching import CASES, Job, Outcome, case, in_words
from tests.gang.namespaces import Network
from tests.support.dying import COMMON
from tests.support.launching import WORKERS
from tests.support.processes import children, everybody, until
from tests.support.refusing import refuser

SLEEP = "echo ready; exec sleep 600"
TWO = ("--nnodes", 1, "--nproc-per-node", 2)


def saves(job: Job, stopped: Callable[[int], list[int]]) -> Outcome:
    """Two workers are told to end and save for longer than somebody is stopped meanwhile."""
    go = job.directory / "go"
    job.start("a", *TWO, WORKERS / "patient.py", go)
    job.wait_for("a", "ready", 2)
    pid = job.launchers["a"].pid
    os.kill(pid, signal.SIGTERM)
    job.wait_for("a", "saving", 2)
    pids = stopped(pid)
    for each in pids:
        os.kill(each, signal.SIGSTOP)
    time.sleep(11)
    for each in reversed(pids):
        os.kill(each, signal.SIGCONT)
    since = time.monotonic()
    time.sleep(1)
    go.touch()
    statuses, seconds = job.ends(since=since)
    saved = job.said("a").count("saved")
    return Outcome(f"{saved} of 2 saved, {in_words(statuses)}", seconds, saved == 2)


@case("the launcher is stopped for 11 s while workers save")
def launcher_stopped(job: Job) -> Outcome:
    return saves(job, lambda pid: [pid])


@case("all are stopped for 11 s while workers save")
def all_stopped(job: Job) -> Outcome:
    return saves(job, everybody)


def absent(job: Job, *words: object, **more: object) -> Outcome:
    """One of two nodes fails before it joins: the other ends too, and not with 0."""
    job.gang("a", 2, shell=SLEEP)
    time.sleep(5)
    job.gang("b", 2, *words, **more)  # type: ignore[arg-type]
    job.ends("b")
    statuses, seconds = job.ends()
    return Outcome(in_words(statuses), seconds, all(statuses.values()))


CASES["a node lacks the script"] = lambda job: absent(job, "no-such-script.py")
CASES["a node's flag is none"] = lambda job: absent(job, "--bogus", shell=SLEEP)
CASES["a node has no GPU"] = lambda job: absent(job, "--nproc-per-node", "gpu", shell=SLEEP)


@case("a node that waits is killed")
def killed(job: Job) -> Outcome:
    for name in "ab":
        job.gang(name, 3, shell=SLEEP)
    time.sleep(20)  # torchrun does not say that it waits
    job.launchers["b"].kill()
    statuses, seconds = job.ends()
    return Outcome(in_words(statuses), seconds, all(statuses.values()))


@case("a cable is cut for 8 s while nodes meet")
def cut(job: Job) -> Outcome:
    network = Network("abc")
    try:
        job.endpoint = f"{network.address('a')}:29400"
        for name in "ab":
            job.gang(name, 3, shell="echo ready", within=network.within(name))
        time.sleep(20)
        network.cut("b")
        time.sleep(8)
        network.mend("b")
        job.gang("c", 3, shell="echo ready", within=network.within("c"))
        statuses, seconds = job.ends()
        return Outcome(in_words(statuses), seconds, set(statuses.values()) == {0})
    finally:
        job.clear()
        network.remove()


@case("twelve nodes meet with ulimit -Sn 32")
def open_files(job: Job) -> Outcome:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    names = "abcdefghijkl"
    for name in names:
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, hard))  # noqa: E731
        job.gang(name, len(names), shell="echo ready", preexec=limit)
    statuses, seconds = job.ends(since=time.monotonic() + 60.0)  # to import torch so often
    ended = sum(status == 0 for status in statuses.values())
    return Outcome(f"{ended} of {len(names)} end with 0", seconds + 60.0, ended == len(names))


@case("strangers connect as nodes meet")
def strangers(job: Job) -> Outcome:
    """One sends what nobody understands, and 200 say nothing."""
    job.gang("a", 2, shell="echo ready")
    host, port = job.endpoint.split(":")
    held: list[socket.socket] = []

    def listens() -> bool:
        with suppress(OSError):
            held.append(socket.create_connection((host, int(port))))
        return bool(held)

    until(listens, "it listens")
    with suppress(OSError):
        held[0].sendall(b'{"host": ' + b"9" * 5000 + b"}\n")
        held += [socket.create_connection((host, int(port)), 1) for _ in range(200)]
    job.gang("b", 2, shell="echo ready")
    statuses, seconds = job.ends()
    for each in held:
        each.close()
    return Outcome(in_words(statuses), seconds, set(statuses.values()) == {0})


@case("a lost launcher is started again (--max-restarts 1)")
def comes_back(job: Job) -> Outcome:
    again = 'echo ready; [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && exec sleep 600; exit 0'
    for name in "ab":
        job.gang(name, 2, "--max-restarts", 1, "--node-rank", "ab".index(name), shell=again)
    for name in "ab":
        job.wait_for(name, "ready")
    lost = job.launchers.pop("b")
    for pid in everybody(lost.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    lost.wait()
    time.sleep(5)
    job.gang("b", 2, "--max-restarts", 1, "--node-rank", 1,
             shell='echo ready; [ "$GROUP_RANK" = 1 ]')  # fmt: skip
    statuses, seconds = job.ends()
    return Outcome(in_words(statuses), seconds, set(statuses.values()) == {0})


@case("a rank crashes slowly, another fails of it")
def first_failure(job: Job) -> Outcome:
    script = job.directory / "script.py"
    script.write_text(
        f"{COMMON}\nif rank == 1:\n    memory = slow_to_die()\n    tell('pid')\n"
        "    os.kill(os.getpid(), signal.SIGSEGV)\nwait_until_it_dies(told('pid'))\nos._exit(7)\n"
    )
    job.start("a", *TWO, script, HERE=str(job.directory))
    statuses, seconds = job.ends()
    named = re.search(r"failed first: rank (\d)|(?s:Root Cause.*?rank +: (\d))", job.said("a"))
    rank = next(filter(None, named.groups())) if named else "none"
    return Outcome(f"names rank {rank}, {in_words(statuses)}", seconds, rank == "1")


@case("roles on two nodes")
def roles(job: Job) -> Outcome:
    shell = 'echo "$ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE $WORLD_SIZE"'
    for name, role, nproc in (("a", "ps", 1), ("b", "trainer", 2)):
        job.gang(name, 2, "--role", role, "--nproc-per-node", nproc, shell=shell)
    statuses, seconds = job.ends()
    said = sorted(re.findall(r"(?:ps|trainer) \d/\d \d", job.said("a") + job.said("b")))
    wanted = ["ps 0/1 3", "trainer 0/2 3", "trainer 1/2 3"]
    return Outcome(f"{', '.join(said)}; {in_words(statuses)}", seconds, said == wanted)


@case("MASTER_PORT of a static endpoint")
def static_port(job: Job) -> Outcome:
    host, port = job.endpoint.split(":")
    static = ("--nnodes", 2, "--rdzv-backend", "static", "--rdzv-endpoint", job.endpoint)
    for number, name in enumerate("ab"):
        job.start(name, *static, "--node-rank", number, shell="echo $MASTER_ADDR:$MASTER_PORT")
    statuses, seconds = job.ends()
    count = sum(f"{host}:{port}" in job.said(name) for name in "ab")
    return Outcome(f"{count} of 2 have it; {in_words(statuses)}", seconds, count == 2)


def plain(job: Job, preexec: Callable[[], object] | None = None, **more: object) -> Outcome:
    """Two workers that end well do so."""
    job.start("a", *TWO, shell="echo ready", preexec=preexec, **more)  # type: ignore[arg-type]
    statuses, seconds = job.ends()
    return Outcome(in_words(statuses), seconds, statuses == {"a": 0})


for refused in ("memfd_create", "pidfd_send_signal", "setsid", "waitid", "sched_getaffinity"):
    CASES[f"{refused} is refused"] = lambda job, name=refused: plain(  # type: ignore[misc]
        job, refuser({name: errno.ENOSYS if name == "pidfd_send_signal" else errno.EPERM})
    )
CASES["stdin is closed"] = lambda job: plain(job, lambda: os.close(0))
CASES["umask 777"] = lambda job: plain(job, lambda: os.umask(0o777))
CASES["PYTHONWARNINGS=error"] = lambda job: plain(job, PYTHONWARNINGS="error")
CASES["RANK and WORLD_SIZE are exported"] = lambda job: plain(job, RANK="0", WORLD_SIZE="2")


@case("SIGTERM while it waits for others")
def told(job: Job) -> Outcome:
    job.gang("a", 2, shell=SLEEP)
    until(lambda: children(job.launchers["a"].pid) or job.program == "torchrun", "it has begun")
    time.sleep(15)
    job.launchers["a"].terminate()
    statuses, seconds = job.ends()
    return Outcome(in_words(statuses), seconds, statuses["a"] is not None)
