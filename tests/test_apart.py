"""A launch in a program that has other things to do: it has a process of its own."""

import json
import os
import pty
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import LAUNCHER, SLURM_TASK, WORKERS, clean_environ, run, start
from tests.support.matrix import mostly_full
from tests.support.processes import until
from tests.support.watching import launched

CALLER = (sys.executable, WORKERS / "caller.py")
SLEEP, CATCH = WORKERS / "sleep.py", WORKERS / "catch.py"
FAIL = ("--nproc", 2, "--quiet", WORKERS / "fail.py", 1, "exit", 7)
QUICK = ("--nproc", 1, "--no-python", "true")
ENDS = [
    (("--nproc", 2, "--no-python", "true"), 0),
    (FAIL, 7),
    (("--max-restarts", 1, *FAIL), 7),
    (("--nproc", 0, SLEEP), 2),
    ((), 2),
    (("--help",), 0),
    (("--explain", SLEEP), 0),
    (("scripts",), 0),
]


def told(output: str) -> dict[str, Any]:
    """What caller.py says at its end."""
    *_, line, last = output.splitlines()
    assert last == "exit handlers have run"
    return json.loads(line)


@pytest.mark.parametrize(("words", "status"), mostly_full(ENDS, 3))
def test_the_caller_goes_on_and_is_as_it_was(words: tuple[object, ...], status: int) -> None:
    done = run(*CALLER, "module", *words)
    assert told(done.stdout) == {"codes": [status, status], "changed": []}, done.stderr


@pytest.mark.parametrize("way", mostly_full(["function", "of torch 1", "thread", "traced"], 2))
def test_however_the_launch_is_called(way: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys; sys.exit(7)")
    done = run(*CALLER, way, "--nproc", 2, "--quiet", tmp_path / "script.py")
    assert told(done.stdout) == {"codes": [7, 7], "changed": []}, done.stderr


def test_a_task_becomes_a_worker_in_that_process() -> None:
    words = ("module", "--quiet", "--no-python", "sh", "-c", "echo $RANK; exit 5")
    done = run(*CALLER, *words, environ=clean_environ(**SLURM_TASK))
    assert done.stdout.splitlines()[:2] == ["2", "2"]
    assert told(done.stdout) == {"codes": [5, 5], "changed": []}, done.stderr


def test_what_it_prints_comes_where_the_callers_output_goes() -> None:
    code = (
        "import contextlib, io, sys\nfrom spawnlaunch.__main__ import main\n"
        "out, err = io.StringIO(), io.StringIO()\n"
        "with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):\n"
        "    try: main()\n    except SystemExit as end: print(end.code)\n"
        "print(out.getvalue().split(), 'rank 0' in err.getvalue())\n"
    )
    done = run(sys.executable, "-c", code, "--nproc", 1, "--no-python", "echo", "said")
    assert (done.stdout, done.stderr) == ("['said', '0'] True\n", "")


@pytest.mark.parametrize("mode", mostly_full(["local", "task"]))
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_are_passed_on(signum: int, mode: str, tmp_path: Path) -> None:
    environ = SLURM_TASK if mode == "task" else {}
    words = () if mode == "task" else ("--nproc", "1")
    command = (*map(str, CALLER), "module", *words)
    with launched(
        CATCH, "TERM", "USR1", directory=tmp_path, command=command, environ=environ
    ) as it:
        for _ in range(2):  # two launches
            before = it.output.count(b"ready")
            it.read_until(before + 1)
            it.send(signum)
            if signum != signal.SIGTERM:
                until(lambda: it._read(0.1) is None and b"SIGUSR1" in it.output, "it came")
                it.send(signal.SIGTERM)
        assert it.status() == 0
        ended = told(it.output.decode())
        assert ended == {"codes": [85, 85], "changed": []}, it.stderr


def test_it_ends_when_the_caller_is_killed(tmp_path: Path) -> None:
    command = (*map(str, CALLER), "module", "--nproc", "2", "--prefix=never")
    with launched(SLEEP, directory=tmp_path, command=command) as it:
        it.read_until(2)
        it.send(signal.SIGKILL)
        assert it.status() == 128 + signal.SIGKILL
        assert it.all_gone()


def test_what_is_typed_comes_to_the_worker_once(tmp_path: Path) -> None:
    words = [*map(str, CALLER), "module", "--quiet", "--no-python", "--nproc", "1", "--grace", "2"]
    script = "trap 'echo came' INT; echo ready; while :; do sleep 0.2; done"
    pid, fd = pty.fork()
    if not pid:
        os.chdir(WORKERS.parents[1])
        os.execve(words[0], [*words, "sh", "-c", script], clean_environ(TMPDIR=str(tmp_path)))
    text = ""

    def read_until(word: str) -> None:
        nonlocal text
        while word not in text:
            text += os.read(fd, 4096).decode()

    for _ in range(2):
        read_until("ready")
        os.write(fd, b"\x03")
        read_until("came")
        time.sleep(0.5)
        text += os.read(fd, 4096).decode() if text.endswith("came") else ""
        assert text.count("came") == 1
        text = ""
    read_until("exit handlers have run")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


PROFILED = ("-m", "cProfile", "-o", "profile", "-m", "spawnlaunch")
COVERED = ("-m", "coverage", "run", "--data-file", "covered", "-m", "spawnlaunch")


@pytest.mark.parametrize(
    ("words", "file"), mostly_full([(PROFILED, "profile"), (COVERED, "covered")])
)
def test_a_profiler_writes_its_file(words: tuple[str, ...], file: str, tmp_path: Path) -> None:
    if "coverage" in words:
        pytest.importorskip("coverage")
    done = run(sys.executable, *words, *FAIL, cwd=tmp_path)
    assert (tmp_path / file).exists(), done.stderr
    assert done.returncode in (7, 0 if file == "profile" else 7)  # cProfile's own


@pytest.mark.full
def test_a_cell_runs_the_module_and_the_kernel_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    cells = (
        "kept = 41\n%run -m spawnlaunch -- --nproc 2 --quiet --no-python echo said\nprint(kept + 1)"
    )
    (tmp_path / "cells.ipy").write_text(cells)
    environ = clean_environ(IPYTHONDIR=str(tmp_path))
    done = run(sys.executable, "-m", "IPython", "cells.ipy", cwd=tmp_path, environ=environ)
    assert sorted(done.stdout.split()) == ["42", "[0]", "[1]", "said", "said"], done.stderr


class Client:
    """An editor's part of a debugger: it attaches to debugpy, and to each child that asks."""

    def __init__(self) -> None:
        self.children: list[int] = []
        self.connections: list[socket.socket] = []

    def begin(self, endpoints: Path, attach: dict[str, Any]) -> None:
        """Attach where the adapter says that it listens: at all of its ports, as it must first."""
        until(lambda: endpoints.exists() and endpoints.read_text().endswith("\n"), "it listens")
        self.follow(json.loads(endpoints.read_text())["client"]["port"], attach)

    def follow(self, port: int, attach: dict[str, Any]) -> None:
        """Attach to what listens there, and read until its end, or ours."""
        connection = socket.create_connection(("127.0.0.1", port))
        self.connections.append(connection)
        stream = connection.makefile("rwb")
        self.send(stream, 1, "initialize", {"adapterID": "test"})
        self.send(stream, 2, "attach", attach)
        with suppress(OSError):
            while event := self.heard(stream):
                if event == "initialized":
                    self.send(stream, 3, "configurationDone", {})

    def send(self, stream: Any, number: int, command: str, arguments: object) -> None:
        said = {"type": "request", "seq": number, "command": command, "arguments": arguments}
        body = json.dumps(said).encode()
        stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        stream.flush()

    def heard(self, stream: Any) -> str:
        """The kind of the next message; "" at the end."""
        while (header := stream.readline()) and not header.startswith(b"Content-Length"):
            pass
        if not header:
            return ""
        stream.readline()
        message = json.loads(stream.read(int(header.split()[1])))
        if message.get("event") == "debugpyAttach":
            child = message["body"]
            self.children.append(child["subProcessId"])
            args = (child["connect"]["port"], child)
            threading.Thread(target=self.follow, args=args, daemon=True).start()
        return str(message.get("event") or message["type"])

    def leave(self) -> None:
        for each in self.connections:
            each.shutdown(socket.SHUT_RDWR)


CHILD = "import subprocess, sys; sys.exit(subprocess.call({words}))"
IN_PYTHON = (
    "import os, spawnlaunch\n"
    "if __name__ == '__main__':\n"
    "    print(spawnlaunch.launch(os.getenv, 'RANK', nproc=2, quiet=True))\n"
)


@pytest.mark.full
@pytest.mark.parametrize("how", ["module", "task", "child", "launch"])
def test_a_debugger_that_follows_children_does_not_hang_a_launch(how: str, tmp_path: Path) -> None:
    pytest.importorskip("debugpy")
    nproc = () if how == "task" else ("--nproc", "2")
    words = (
        "-m",
        "spawnlaunch",
        "--prefix=never",
        "--quiet",
        *nproc,
        str(tmp_path / "say.py"),
        "a b",
    )
    (tmp_path / "say.py").write_text("import os\nos.write(1, b'said\\n')\n")
    (tmp_path / "child.py").write_text(CHILD.format(words=[sys.executable, *words]))
    (tmp_path / "launch.py").write_text(IN_PYTHON)
    debugged = (str(tmp_path / f"{how}.py"),) if how in ("child", "launch") else words
    attach, client = {"subProcess": True, "justMyCode": False}, Client()
    endpoints = tmp_path / "endpoints"  # debugpy's adapter writes them there
    threading.Thread(target=client.begin, args=(endpoints, attach), daemon=True).start()
    environ = clean_environ(**(SLURM_TASK if how == "task" else {}))
    with (tmp_path / "out").open("w+") as out, (tmp_path / "err").open("w+") as err:
        done = run(  # not into pipes: a process of the debugger outlives it
            *(sys.executable, "-m", "debugpy", "--listen", "127.0.0.1:0"),
            *("--wait-for-client", *debugged), stdout=out, stderr=err,
            environ={**environ, "DEBUGPY_ADAPTER_ENDPOINTS": str(endpoints)},
        )  # fmt: skip
    client.leave()
    said, errors = (tmp_path / "out").read_text(), (tmp_path / "err").read_text()
    assert done.returncode == 0, errors
    assert len(client.children) == (how == "child"), "none is a process of the launch"
    (line,) = [line for line in errors.splitlines() if "does not follow the ranks" in line]
    if how == "launch":
        assert said == "['0', '1']\n"
        assert "debugpy.listen(5679)" in line
    else:
        assert said.split() == ["said"] * (1 if how == "task" else 2)
        wanted = "--standalone --nproc 1 -m debugpy --listen 127.0.0.1:5679 --wait-for-client"
        assert f"-m spawnlaunch {wanted} {tmp_path}/say.py 'a b' and attach" in line


def test_alone_it_has_no_other_process(tmp_path: Path) -> None:
    """As `python -m`, and as the script that pip makes."""
    (tmp_path / "spawnlaunch").write_text(
        "import sys\nfrom spawnlaunch.__main__ import main\n"
        "if __name__ == '__main__':\n    sys.exit(main())\n"
    )
    for command in (LAUNCHER, (sys.executable, str(tmp_path / "spawnlaunch"))):
        environ = clean_environ(**SLURM_TASK)
        task = start(*command, "--quiet", "--no-python", "sh", "-c", "echo $$", environ=environ)
        assert task.communicate()[0] == f"{task.pid}\n"
