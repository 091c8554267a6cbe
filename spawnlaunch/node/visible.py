"""Which devices a worker will see, and in which order, without asking a vendor's library.

A worker's runtime is CUDA, ROCm or Level Zero; which one PyTorch was built for is not looked at. On
a node with devices of several vendors NVIDIA's are taken before AMD's before Intel's, and a line
says so.
"""

from __future__ import annotations

from itertools import takewhile

from spawnlaunch import cpuset
from spawnlaunch.node import masks
from spawnlaunch.node.masks import Slot
from spawnlaunch.node.model import Device, Node
from spawnlaunch.reading import is_number
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CUDA = "CUDA_VISIBLE_DEVICES"
CUDA_ORDER = "CUDA_DEVICE_ORDER"
ROCR = "ROCR_VISIBLE_DEVICES"  # acts first, on the devices that KFD shows
WITHIN_ROCR = ("HIP_VISIBLE_DEVICES", CUDA, "GPU_DEVICE_ORDINAL")  # the first that is set, on these
ZE_MASK = "ZE_AFFINITY_MASK"
ZE_HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"  # FLAT unless set: each tile is a device
SLURM_STEP_DEVICES = "SLURM_STEP_GPUS"

VENDORS = ("nvidia", "amd", "intel")


class Visible(NamedTuple):
    """The devices that a worker sees, in the order in which it counts them."""

    devices: tuple[int | None, ...]  # numbers of Node.devices; None: one that cannot be told
    source: str  # the variables that decided, such as "CUDA_VISIBLE_DEVICES"; empty: none is set
    warnings: tuple[str, ...]


class _Choice(NamedTuple):
    slots: Sequence[Slot]
    sources: tuple[str, ...]
    warnings: tuple[str | None, ...]


def visible(node: Node, environ: Mapping[str, str]) -> Visible:
    """The devices that a worker with this environment sees on this node."""
    base = [device for device in node.devices if device.usable is not False]
    vendors = [vendor for vendor in VENDORS if any(d.vendor == vendor for d in base)]
    if not vendors:
        return Visible((), *_nothing_there(environ, bool(node.devices)))
    mine = sorted((d for d in base if d.vendor == vendors[0]), key=lambda d: d.ordinal or 0)
    choose = {"nvidia": _nvidia, "amd": _amd, "intel": _intel}[vendors[0]]
    choice = choose(mine, environ)
    return Visible(
        devices=tuple(None if slot is None else slot.number for slot in choice.slots),
        source=", ".join(choice.sources),
        warnings=tuple(w for w in (_several(vendors), *choice.warnings) if w),
    )


def _nothing_there(environ: Mapping[str, str], hidden: bool) -> tuple[str, tuple[str, ...]]:
    """Source and warnings where no device can be used."""
    value = environ.get(CUDA, "")
    if not value[:1].isdigit() or hidden:
        return CUDA if CUDA in environ else "", ()
    return CUDA, (f"{CUDA}={value} names devices, and /sys shows none on this node",)


def _several(vendors: Sequence[str]) -> str | None:
    if len(vendors) == 1:
        return None
    return f"devices of {' and '.join(vendors)}: those of {vendors[0]} are taken"


def _nvidia(base: Sequence[Device], environ: Mapping[str, str]) -> _Choice:
    slots, order_warning = _cuda_order(base, environ.get(CUDA_ORDER))
    if CUDA not in environ:
        return _Choice(slots, (), (order_warning,))
    chosen, complaint = masks.select(CUDA, environ[CUDA], slots, repeat_empties=True)
    return _Choice(chosen, (CUDA,), (order_warning, complaint, _slices(environ[CUDA])))


def _cuda_order(base: Sequence[Device], order: str | None) -> tuple[Sequence[Slot], str | None]:
    """The devices as CUDA numbers them: by address, as workers are told, unless the user differs.

    CUDA's own default puts the fastest first, which matters where the devices are not all alike.
    """
    if len({device.model for device in base}) == 1:
        return base, None
    if order in (None, "PCI_BUS_ID"):
        return base, (
            "the devices are not all of one model: they are numbered by PCI address "
            f"({CUDA_ORDER}=PCI_BUS_ID), not the fastest first"
        )
    return [None] * len(base), (
        f"{CUDA_ORDER}={order} numbers devices of several models in an order that is not known "
        "here; set it to PCI_BUS_ID"
    )


def _slices(value: str) -> str | None:
    """A process enumerates one MIG slice, however many it is given (NVIDIA MIG user guide)."""
    if value.upper().count("MIG-") < 2:
        return None
    return f"{CUDA} lists several MIG slices and a process sees the first alone: give each rank one"


def _amd(base: Sequence[Device], environ: Mapping[str, str]) -> _Choice:
    slots: Sequence[Slot] = base
    sources: list[str] = []
    warnings: list[str | None] = []
    if ROCR in environ:
        slots, complaint = masks.select(ROCR, environ[ROCR], slots, repeat_empties=False)
        sources.append(ROCR)
        warnings.append(complaint)
    inner = next((name for name in WITHIN_ROCR if name in environ), None)
    if inner is not None:
        within, complaint = masks.select(inner, environ[inner], slots, repeat_empties=True)
        sources.append(inner)
        warnings.append(_double(inner, environ, slots) if slots and not within else complaint)
        slots = within
    return _Choice(slots, tuple(sources), tuple(warnings))


def _double(inner: str, environ: Mapping[str, str], slots: Sequence[Slot]) -> str | None:
    """Two masks that together leave no device: the inner one counts within the outer one."""
    if ROCR not in environ or environ[inner] in ("", "-1"):
        return None
    return (
        f"{ROCR}={environ[ROCR]} leaves {len(slots)}, of which {inner}={environ[inner]} selects "
        f"none, for it counts from 0 within them: no device is visible; unset {inner}"
    )


def _intel(base: Sequence[Device], environ: Mapping[str, str]) -> _Choice:
    """Level Zero: the mask is a set, the order stays the driver's (Level Zero specification)."""
    composite = environ.get(ZE_HIERARCHY, "FLAT").upper() == "COMPOSITE"
    cards = list({device.address: device for device in reversed(base)}.values())[::-1]
    whole = cards if composite else list(base)
    if not environ.get(ZE_MASK):
        return _Choice(whole, (), ())
    chosen: set[Device] = set()
    bad: list[str] = []
    for token in (entry.strip() for entry in environ[ZE_MASK].split(",")):
        device = _tile(token, base, cards) if "." in token else _nth(token, whole)
        if device is None:
            bad.append(token)
        else:
            chosen.add(device)
    if composite:  # a card with several tiles chosen is one device
        chosen = set({device.address: device for device in sorted(chosen, reverse=True)}.values())
    complaint = f"{ZE_MASK}={environ[ZE_MASK]}: no device {', '.join(bad)}" if bad else None
    return _Choice(sorted(chosen), (ZE_MASK,), (complaint,))


def _nth(token: str, devices: Sequence[Device]) -> Device | None:
    return devices[int(token)] if is_number(token) and int(token) < len(devices) else None


def _tile(token: str, base: Sequence[Device], cards: Sequence[Device]) -> Device | None:
    number, _, tile = token.partition(".")
    card = _nth(number, cards)
    if card is None:
        return None
    return _nth(tile.split(".")[0], [d for d in base if d.address == card.address])


def step_devices(
    node: Node, environ: Mapping[str, str], local_tasks: int
) -> tuple[int, ...] | None:
    """The devices that Slurm gave to the whole step on this node; None where it does not say.

    SLURM_STEP_GPUS (srun(1)) counts by PCI address and does not change inside a control group.
    Under --gpus-per-task it holds the task's own device alone: so a list that is shorter than the
    number of tasks is not taken.
    """
    try:
        numbers = sorted(cpuset.parse(environ.get(SLURM_STEP_DEVICES, "")))
    except cpuset.CpuSetError:
        return None
    vendor = next((v for v in VENDORS if any(d.vendor == v for d in node.devices)), None)
    devices = [device for device in node.devices if device.vendor == vendor]
    if not numbers or len(numbers) < local_tasks or numbers[-1] >= len(devices):
        return None
    return tuple(devices[number].number for number in numbers)


def named(environ: Mapping[str, str]) -> int:
    """How many devices the masks name, for a node whose /sys shows none.

    A resource manager may hand out devices that are not there to be read, as in some containers.
    """
    for variable in (CUDA, "HIP_VISIBLE_DEVICES", ROCR):
        if variable in environ:
            tokens = [token.strip() for token in environ[variable].split(",")]
            return len(list(takewhile(_names_a_device, tokens)))
    return 0


def _names_a_device(token: str) -> bool:
    return token.isdigit() or token.upper().startswith(("GPU-", "MIG-"))
