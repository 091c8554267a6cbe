"""The first process of the cluster's own PID namespace: builds the cluster, then waits for the end.

Started by slurm.py under ``unshare``, so that it already has PID, mount, network, UTS and IPC
namespaces of its own. Standard input brings one line of JSON and stays open as long as the test
session lives, however that ends; at end of file this process exits. When the first process of a PID
namespace exits the kernel kills all others in it, and with the last of them go the network devices
and the file systems mounted here (pid_namespaces(7), network_namespaces(7)). So there is nothing to
clean up, and nothing can be left behind.

Standard output brings one line: when all is up the process id as seen from outside, else the
reason.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

START_TIMEOUT_S = 30
POLL_S = 0.02
MUNGE_KEY = Path("/run/munge/key")
MUNGE_KEY_BYTES = 1024  # the most that munge(7) makes use of


def main() -> None:
    outer_pid = os.readlink("/proc/self")  # /proc is still that of the outside
    plan = json.loads(sys.stdin.buffer.raw.readline())
    try:
        own_filesystems()
        for path, text in plan["files"].items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text)
        run("mount", "--bind", plan["hosts"], "/etc/hosts")
        own_network(plan["head"], plan["addresses"], plan["prefix_bits"])
        daemons = start_daemons(plan)
        wait_until_idle(plan, daemons)
        answer = outer_pid
    except Exception as error:
        answer = f"{error} {getattr(error, 'stderr', None) or ''}".replace("\n", " ")
    print(answer, flush=True)
    hold()


def own_filesystems() -> None:
    """Private copies of what daemons and jobs write to outside the directories they are given."""
    run("mount", "-t", "proc", "proc", "/proc")
    for directory in ("/run", "/dev/shm"):
        run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", directory)
    os.chmod("/run", 0o755)


def own_network(head: str, addresses: dict[str, str], prefix_bits: int) -> None:
    """A bridge here, one cable to each node's network namespace, and no way to the outside."""
    lines = [
        "link set lo up",
        "link add bridge type bridge",
        f"address add {addresses[head]}/{prefix_bits} dev bridge",
        "link set bridge up",
    ]
    for node in addresses.keys() - {head}:
        lines.append(f"netns add {node}")
        lines.append(f"link add {node} master bridge up type veth peer name eth0 netns {node}")
    run("ip", "-batch", "-", stdin="\n".join(lines) + "\n")
    run("hostname", head)


def start_daemons(plan: dict) -> list[subprocess.Popen]:
    start_munged()
    conf = plan["conf"]
    os.environ["SLURM_CONF"] = conf
    for directory in (plan["logs"], plan["jobs"], "/run/slurm/state"):
        os.makedirs(directory)
    daemons = [background(plan, "slurmctld", ["slurmctld", "-D", "-f", conf])]
    for node, address in plan["addresses"].items():
        if node != plan["head"]:
            command = on_node(node, f"{address}/{plan['prefix_bits']}", conf)
            daemons.append(background(plan, node, command))
    return daemons


def start_munged() -> None:
    """At munge's usual socket, which lies in this /run, so that every client finds it unasked."""
    MUNGE_KEY.parent.mkdir(mode=0o755)
    MUNGE_KEY.touch(mode=0o400)
    MUNGE_KEY.write_bytes(os.urandom(MUNGE_KEY_BYTES))
    run(
        "munged",
        f"--key-file={MUNGE_KEY}",
        "--socket=/run/munge/munge.socket.2",
        "--pid-file=/run/munge/munged.pid",
        "--seed-file=/run/munge/seed",
        "--log-file=/run/munge/log",
    )


def on_node(node: str, address: str, conf: str) -> list[str]:
    """A slurmd in the node's network namespace, with the node's name as host name."""
    script = (
        f"hostname {node}; ip link set lo up; ip address add {address} dev eth0;"
        f" ip link set eth0 up; exec slurmd -D -f {conf} -N {node}"
    )
    return ["nsenter", f"--net=/run/netns/{node}", "unshare", "--uts", "sh", "-ec", script]


def background(plan: dict, name: str, command: list[str]) -> subprocess.Popen:
    with open(f"{plan['logs']}/{name}", "wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def wait_until_idle(plan: dict, daemons: list[subprocess.Popen]) -> None:
    """Raises, with the ends of the logs, when a daemon ends or time is up before."""
    expected = len(plan["addresses"]) - 1
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and all(daemon.poll() is None for daemon in daemons):
        idle = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--states=idle"], capture_output=True, text=True
        )
        if len(idle.stdout.splitlines()) == expected:
            return
        time.sleep(POLL_S)
    logs = [f"{log}: {log.read_text()[-600:]}" for log in Path(plan["logs"]).iterdir()]
    raise RuntimeError(f"no {expected} idle nodes; the ends of the logs: {'; '.join(logs)}")


def hold() -> None:
    """Collect orphans, as the first process of a PID namespace must, until the session is over."""
    signal.signal(signal.SIGCHLD, lambda *_: reap())
    reap()
    while not (select.select([0], [], [])[0] and not os.read(0, 1)):
        pass
    os._exit(0)


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def run(*command: str, stdin: str = "") -> None:
    subprocess.run(command, input=stdin, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    main()
