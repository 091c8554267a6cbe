"""How ranks are bound: a policy by name, or a list of CPUs for each rank.

    --bind auto                     exclusive shares of whole cores next to the device, L3-aligned
    --bind exclusive                the same without regard to L3 groups
    --bind node                     all CPUs of the device's NUMA node
    --bind socket                   all CPUs of the device's package
    --bind core-complex             one L3 group
    --bind none                     no binding
    --bind 48-55:56-63              a list for each local rank
    --bind 0xff,0xff00              a mask for each local rank, as srun --cpu-bind=mask_cpu takes it

`node`, `socket`, `exclusive` and `core-complex` mean what they mean to torchrun --numa-binding.
"""

from __future__ import annotations

from spawnlaunch.node import cpuset
from spawnlaunch.node.cpuset import EMPTY, CpuSet
from spawnlaunch.records import NamedTuple

AUTO, EXCLUSIVE, NODE, SOCKET = "auto", "exclusive", "node", "socket"
CORE_COMPLEX, NONE, LIST = "core-complex", "none", "list"
NAMES = (AUTO, NODE, SOCKET, EXCLUSIVE, CORE_COMPLEX, NONE)
FIRST_PER_L3 = "first-per-l3"
_MASKS = "mask_cpu:"


class BindingError(ValueError):
    """What was asked for cannot be bound; the message says what was seen and what to type."""


class Policy(NamedTuple):
    """What the user asked for."""

    name: str = AUTO
    lists: tuple[CpuSet, ...] = ()  # with the name "list": the CPUs of each local rank
    reserve: CpuSet = EMPTY  # CPUs that no rank gets
    reserve_first_per_l3: bool = False  # no rank gets the first core of an L3 group
    smt: bool = True  # False: one hardware thread of each core
    threads: int | None = None  # physical cores for each rank; None: as many as there are

    def with_reserve(self, text: str) -> Policy:
        """This policy with `--reserve-cpus`: a CPU list or first-per-l3. Raises CpuSetError."""
        if text == FIRST_PER_L3:
            return self._replace(reserve_first_per_l3=True)
        return self._replace(reserve=self.reserve | cpuset.parse(text))


DEFAULT = Policy()


def parse(text: str) -> Policy:
    """The policy that `--bind` names. Raises BindingError, or CpuSetError for a list of CPUs."""
    if text in NAMES:
        return Policy(text)
    if text.startswith((_MASKS, "0x", "0X")):
        masks = text.removeprefix(_MASKS).split(",")
        return Policy(LIST, tuple(cpuset.parse_mask(mask) for mask in masks))
    if not text[:1].isdigit():
        raise BindingError(
            f"{text!r} is no way to bind; choose one of {', '.join(NAMES)}, or give each local "
            "rank its CPUs, as in 48-55:56-63"
        )
    return Policy(LIST, tuple(cpuset.parse(item) for item in _items(text)))


def _items(text: str) -> list[str]:
    """The lists between the colons; a colon before `2/8` belongs to a stride, as in 0-31:2/8."""
    items: list[str] = []
    for piece in text.split(":"):
        if items and "/" in piece:
            items[-1] += f":{piece}"
        else:
            items.append(piece)
    return items
