"""The rank group: how the ranks of a bench exchange records, over rank 0's TCP store.

Collectives would need threads in this process, and it has to be forked for every sample. The
records are our own, pickled, as torch.distributed does with objects.
"""

import pickle
from contextlib import suppress
from datetime import timedelta
from typing import Any

from torch.distributed import (  # type: ignore[attr-defined]
    DistError,
    DistNetworkError,
    DistStoreError,
    TCPStore,
)
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

FAILED, DIED = "failed", "died"
LOOK_AGAIN = timedelta(seconds=5)  # a user's command may take its time, but who waits looks around


class RankGoneError(Exception):
    """Another rank has ended, and said why itself."""


class RankGroup:
    """All ranks, each of which calls the same methods in the same order."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._store = PrefixStore("bench", store)
        self.count = 0

    def gather(self, value: object) -> list[Any]:
        """What every rank brought, in their order, on rank 0; an empty list on the others."""
        key = self._key("gather")
        self._put(f"{key}/{self.rank}", value)
        if self.rank != 0:
            return []
        return [self._take(f"{key}/{rank}") for rank in range(self.size)]

    def tell(self, value: object) -> Any:
        """Rank 0's value, on every rank; none goes on before rank 0 is here."""
        key = self._key("tell")
        if self.rank == 0:
            self._put(key, value)
            return value
        return pickle.loads(self._wait_for(key))

    def exchange(self, value: object) -> list[Any]:
        """What every rank brought, in their order, on every rank."""
        everyone = self.gather(value)
        return list(self.tell(everyone))

    def leave(self) -> None:
        """Leave: the others stay until rank 0 is done, and it stays until they have heard of that.

        For the store ends with rank 0, and a launcher may end all ranks when the first has failed.
        """
        self.tell(None)
        self.gather(None)

    def report_failure(self) -> None:
        """Tell those who wait for their sample that it will not be complete."""
        self._store.set(f"{FAILED}/{self.count}", "")

    def report_death(self) -> None:
        """Tell the others not to wait for this rank any more: where nobody watches it, they would.

        The launcher in task mode has become the rank, and srun goes on without --kill-on-bad-exit.
        """
        with suppress(DistError):  # rank 0, which keeps the store, may have gone first
            self._store.set(DIED, "")

    def has_failed(self) -> bool:
        """Whether a rank reported that this sample failed; all ranks count alike."""
        return bool(self._store.check([f"{FAILED}/{self.count}"]))

    def _key(self, what: str) -> str:
        self.count += 1
        return f"{what}/{self.count}"

    def _put(self, key: str, value: object) -> None:
        data: Any = pickle.dumps(value)  # the store keeps bytes; its stub knows str alone
        self._store.set(key, data)

    def _take(self, key: str) -> Any:
        value = pickle.loads(self._wait_for(key))
        self._store.delete_key(key)
        return value

    def _wait_for(self, key: str) -> bytes:
        while True:
            try:
                self._store.wait([key], LOOK_AGAIN)
                return self._store.get(key)
            except DistNetworkError:  # rank 0 keeps the store
                raise RankGoneError from None
            except DistStoreError:  # the time is over
                if self._store.check([DIED]):
                    raise RankGoneError from None


def join() -> RankGroup:
    """Join as the launcher's variables say: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""
    store, rank, size = next(rendezvous("env://"))
    return RankGroup(store, rank, size)


def connect(address: str, port: int, key: str) -> Store:
    """The same store from another process, with keys of its own below `key`."""
    return PrefixStore(key, TCPStore(address, port, is_master=False, wait_for_workers=False))
