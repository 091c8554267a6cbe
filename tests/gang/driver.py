"""A launcher without the rest: its part in a gang, with shell commands as workers.

What happens is printed as lines of JSON. The settings are JSON too: this is a program for tests.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from functools import partial
from typing import Any

from spawnlaunch.failures import Cause
from spawnlaunch.gang import token
from spawnlaunch.gang.link import Endpoint, Link
from spawnlaunch.gang.messages import VERSION, Failed, Hello, Start
from spawnlaunch.gang.server import Server
from spawnlaunch.gang.settings import Settings
from spawnlaunch.gang.wire import secret_of
from spawnlaunch.run.events import Loop, SignalPipe


class Driver:
    """One launcher."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.loop = Loop()
        self.status: int | None = None
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.codes: list[tuple[int, int]] = []
        self.told = False
        host, port = args.endpoint.rsplit(":", 1)
        secret = secret_of(token.find(args.token_file, os.environ), args.run)
        settings = Settings(**json.loads(args.settings))
        endpoint = Endpoint(
            host, int(port), args.run, secret, settings.lost_after_s, ports=args.ports
        )
        who = os.urandom(8).hex()
        self.server = None
        if args.hub:
            self.server = Server(self.loop, endpoint, settings, who, self.hub_line)
        hello = Hello(
            VERSION, args.host, who, args.nproc, args.boot, args.rank, 20000 + os.getpid() % 10000,
            told=tuple(dict(json.loads(args.told)).items()),
        )  # fmt: skip
        self.member = Link(self.loop, endpoint, hello, settings.join_s, self).member
        self.state = ""
        self.pipe = SignalPipe({signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
        self.loop.watch(self.pipe.fd, self.signals)

    def run(self) -> int:
        self.member.begin()
        while self.status is None or (self.server and not self.server.is_over):
            if self.state != self.member.state:
                self.state = self.member.state
                self.print("state", state=self.state)
            self.loop.turn(5.0)
            if self.status is not None and self.server and self.server.hub.phase != "ended":
                break
        return self.status or 0

    def print(self, what: str, **more: Any) -> None:
        print(json.dumps({"host": self.args.host, "what": what, **more}), flush=True)

    def signals(self) -> None:
        for number in self.pipe.read():
            if number == signal.SIGCHLD:
                self.reap()
            else:
                self.member.told(number)

    # What the member wants

    def launch(self, start: Start) -> None:
        self.print("launch", **start._asdict())
        self.codes, self.told = [], False
        for local_rank in range(self.args.nproc):
            rank = start.first_rank + local_rank
            environ = {**os.environ, "RANK": str(rank), "EPOCH": str(start.epoch)}
            environ["NODE"] = self.args.host
            worker = subprocess.Popen(
                ["sh", "-c", self.args.command], env=environ, start_new_session=True
            )
            self.workers[rank] = worker
        self.reap()

    def halt(self, cause: Cause, grace_s: float) -> None:
        self.print("halt", kind=cause.kind, cause_host=cause.host, grace_s=grace_s)
        self.told = True
        self.signal_all(signal.SIGTERM if grace_s else signal.SIGKILL)
        self.loop.alarm(self.kill, grace_s)

    def kill(self) -> None:
        self.signal_all(signal.SIGKILL)

    def signal_all(self, signum: int) -> None:
        for worker in self.workers.values():
            os.killpg(worker.pid, signum)

    def show_stacks(self) -> None:
        self.print("stacks")

    def tell(self, line: str) -> None:
        self.print("line", line=line)

    def await_hub(self, limit_s: float) -> None:
        self.print("hub is lost", limit_s=limit_s)

    def hub_line(self, line: str) -> None:
        self.print("hub line", line=line)

    def exit(self, status: int, cause: Cause | None) -> None:
        told = cause and cause._asdict()
        line = cause.in_words if cause else "all workers have ended well"
        self.print("exit", status=status, cause=told, line=line)
        self.status = status

    # Workers

    def reap(self) -> None:
        for rank, worker in list(self.workers.items()):
            code = worker.poll()
            if code is None:
                continue
            del self.workers[rank]
            self.codes.append((rank, code))
            if code and not self.told:
                cause = Cause("failure", self.member.hello.host, rank, code, pid=worker.pid)
                self.member.worker_failed(Failed(self.member.hello.epoch, cause))
                self.halt(cause, 1.0)
        if not self.workers and self.codes:
            self.loop.alarm(self.kill, None)
            well = not self.told and not any(code for _, code in self.codes)
            port = 20000 + (os.getpid() + len(self.codes) + self.member.hello.epoch) % 10000
            codes, self.codes = tuple(self.codes), []
            self.loop.alarm(partial(self.member.workers_ended, well, port, codes), 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--run", default="none")
    parser.add_argument("--host", required=True)
    parser.add_argument("--nproc", type=int, default=1)
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--boot", default="")
    parser.add_argument("--ports", type=int, default=1)
    parser.add_argument("--hub", action="store_true")
    parser.add_argument("--settings", required=True)
    parser.add_argument("--told", default="{}")
    parser.add_argument("--token-file")
    parser.add_argument("--command", default="true")
    return Driver(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
