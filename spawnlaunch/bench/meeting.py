"""Where the ranks of a bench meet between samples: rank 0's TCP store, and nothing that runs.

Collectives would need threads in this process, and it has to be forked for every sample. What is
exchanged are our own records, pickled, as torch.distributed does with objects.
"""

import pickle
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # documented there
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

FAILED = "failed"
PATIENCE = timedelta(days=30)  # a user's command may take its time; dead ranks are the launcher's


class Meeting:
    """All ranks, each of which calls the same methods in the same order."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._store = PrefixStore("bench", store)
        self._store.set_timeout(PATIENCE)
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
        return pickle.loads(self._store.get(key))

    def exchange(self, value: object) -> list[Any]:
        """What every rank brought, in their order, on every rank."""
        everyone = self.gather(value)
        return list(self.tell(everyone))

    def leave(self) -> None:
        """Part: the others stay until rank 0 is done, and it stays until they have heard of that.

        For the store ends with rank 0, and a launcher may end all ranks when the first has failed.
        """
        self.tell(None)
        self.gather(None)

    def report_failure(self) -> None:
        """Tell those who wait for their sample that it will not be complete."""
        self._store.set(FAILED, "")

    def has_failed(self) -> bool:
        """Whether a rank reported a failure."""
        return bool(self._store.check([FAILED]))

    def _key(self, what: str) -> str:
        self.count += 1
        return f"{what}/{self.count}"

    def _put(self, key: str, value: object) -> None:
        data: Any = pickle.dumps(value)  # the store keeps bytes; its stub knows str alone
        self._store.set(key, data)

    def _take(self, key: str) -> Any:
        value = pickle.loads(self._store.get(key))
        self._store.delete_key(key)
        return value


def join() -> Meeting:
    """Meet as the launcher's variables say: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""
    store, rank, size = next(rendezvous("env://"))
    return Meeting(store, rank, size)


def connect(address: str, port: int, key: str) -> Store:
    """The same store from another process, with keys of its own below `key`."""
    return PrefixStore(key, TCPStore(address, port, is_master=False, wait_for_workers=False))
