"""The rank group: how the ranks of a bench exchange records, over a TCP store.

A rank forks for every sample, so it must have no other threads: a lock that a thread holds during
the fork stays locked in the child for ever. So there are no collectives here, and the server of the
store, which is a thread, runs in a process beside rank 0. The records are the bench's own, pickled,
as torch.distributed does with objects.
"""

import atexit
import os
import pickle
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, NoReturn

from torch.distributed import (  # type: ignore[attr-defined]
    DistError,
    DistNetworkError,
    DistStoreError,
    TCPStore,
)
from torch.distributed.distributed_c10d import PrefixStore, Store

from spawnlaunch.bench import forked_sample

FAILED, DIED, JOINED = "failed", "died", "joined"
MOST_TO_JOIN = timedelta(minutes=30)  # as long as torch.distributed waits, by default
RECHECK = timedelta(seconds=1)  # a user's command may take long; a waiting rank checks others


class RankEndedError(Exception):
    """Another rank has ended, and has reported the reason itself."""


class RankGroup:
    """All ranks of a bench, each of which calls the same methods in the same order."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._store = PrefixStore("bench", store)
        self.count = 0
        self.until = float("inf")  # by the monotonic clock: a rank that is silent then is dead

    def gather(self, value: object) -> list[Any]:
        """Return every rank's value in rank order on rank 0; an empty list on the other ranks."""
        key = self._key("gather")
        self._put(f"{key}/{self.rank}", value)
        if self.rank != 0:
            return []
        values = []
        for rank in range(self.size):
            values.append(pickle.loads(self._wait_for(f"{key}/{rank}")))
            self._store.delete_key(f"{key}/{rank}")
        return values

    def broadcast(self, value: object) -> Any:
        """Return rank 0's value on every rank; each rank waits until rank 0 has sent it."""
        key = self._key("tell")
        if self.rank == 0:
            self._put(key, value)
            return value
        return pickle.loads(self._wait_for(key))

    def exchange(self, value: object) -> list[Any]:
        """Return every rank's value, in rank order, on every rank."""
        everyone = self.gather(value)
        return list(self.broadcast(everyone))

    def leave(self) -> None:
        """Leave the group: the others wait for rank 0, and rank 0 for their receipt.

        For the store ends with rank 0, and a launcher may end all ranks after the first failure.
        """
        self.broadcast(None)
        self.gather(None)

    def report_failure(self) -> None:
        """Tell the ranks that wait in this sample that it will not be complete."""
        self._store.set(f"{FAILED}/{self.count}", "")

    def report_death(self) -> None:
        """Tell the others not to wait for this rank any more, as they would without a launcher.

        In task mode the launcher has become the rank, and srun goes on without --kill-on-bad-exit.
        """
        with suppress(DistError):  # rank 0, which keeps the store, may have gone first
            self._store.set(DIED, "")

    def has_failed(self) -> bool:
        """Whether a rank reported that this sample failed; its number is the same on all ranks."""
        return bool(self._store.check([f"{FAILED}/{self.count}"]))

    def _key(self, operation: str) -> str:
        self.count += 1
        return f"{operation}/{self.count}"

    def _put(self, key: str, value: object) -> None:
        data: Any = pickle.dumps(value)  # the store keeps bytes; its stub knows str alone
        self._store.set(key, data)

    def _wait_for(self, key: str) -> bytes:
        while True:
            try:
                self._store.wait([key], RECHECK)
                return self._store.get(key)
            except DistNetworkError:  # rank 0 keeps the store
                raise RankEndedError from None
            except DistStoreError:  # the time is over
                if time.monotonic() > self.until or self._store.check([DIED]):
                    raise RankEndedError from None


def join(environ: Mapping[str, str]) -> RankGroup:
    """Join the group by the launcher's variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.

    Raises FailedError where rank 0 has no port for the store, or not all ranks connect to it.
    """
    rank, size, port = (int(environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    address = environ["MASTER_ADDR"]
    agent_has_store = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if rank == 0 and not agent_has_store:
        _start_store(address, port)
    _comes(lambda: socket.create_connection((address, port), 1).close())
    try:
        return joined(TCPStore(address, port, timeout=RECHECK), rank, size)
    except DistError as error:
        raise forked_sample.FailedError(f"cannot join the other ranks: {error}") from None


def joined(store: Store, rank: int, size: int) -> RankGroup:
    """Return the group after all its ranks have joined."""
    everyone = [f"{JOINED}/{other}" for other in range(size)]
    store.set(everyone[rank], "")
    if not _comes(lambda: store.wait(everyone, RECHECK)):
        late = [other for other in range(size) if not store.check([everyone[other]])]
        raise forked_sample.FailedError(
            f"of {size} ranks {', '.join(map(str, late))} have not come in {MOST_TO_JOIN}"
        )
    return RankGroup(store, rank, size)


def _comes(attempt: Callable[[], object]) -> bool:
    """Retry until an attempt succeeds; a long wait of the store would block SIGALRM."""
    until = time.monotonic() + MOST_TO_JOIN.total_seconds()
    while time.monotonic() < until:
        with suppress(DistStoreError, OSError):
            attempt()
            return True
        time.sleep(0.1)
    return False


def _start_store(address: str, port: int) -> None:
    """Run the store in a child until the end of this process. Raises FailedError."""
    problem_reader, problem_writer = os.pipe()
    end_reader, end_writer = os.pipe()  # which is closed by our end
    pid = os.fork()
    if pid == 0:
        _keep_store(address, port, problem_writer, end_reader, end_writer)
    os.close(problem_writer)
    os.close(end_reader)
    atexit.register(os.waitpid, pid, 0)
    atexit.register(os.close, end_writer)  # comes before what was registered before
    with open(problem_reader) as pipe:
        if problem := pipe.read():
            raise forked_sample.FailedError(f"cannot listen for the other ranks: {problem}")


def _keep_store(
    address: str, port: int, problem_writer: int, end_reader: int, end_writer: int
) -> NoReturn:
    """Run the store in the child, which ignores signals so that rank 0 can still report."""
    try:
        for signum in forked_sample.ENDING:
            signal.signal(signum, signal.SIG_IGN)
        os.close(end_writer)
        _store = TCPStore(address, port, is_master=True, wait_for_workers=False)
        os.close(problem_writer)
        os.read(end_reader, 1)
    except Exception as error:
        os.write(problem_writer, str(error).encode())
    finally:
        os._exit(0)


def connect(address: str, port: int, key: str) -> Store:
    """Connect to the same store from another process, with keys of its own below `key`."""
    return PrefixStore(key, TCPStore(address, port, is_master=False, wait_for_workers=False))
