"""Find the devices that a worker will see, and their order, without a vendor's library.

A worker's runtime is CUDA, ROCm or Level Zero; spawnlaunch does not check which one PyTorch was
built for. On a node with devices of several vendors workers use NVIDIA's before AMD's before
Intel's, and a line says so, unless `--nproc xpu`, `hpu` or `npu` names the vendor. CUDA and ROCm
read lists from the environment:

    CUDA_VISIBLE_DEVICES=2,0              positions, in the order in which the worker counts them
    CUDA_VISIBLE_DEVICES=GPU-029490c8     the beginning of a UUID that no other device has
    CUDA_VISIBLE_DEVICES=MIG-3f2a...      a slice of a device, by its own UUID
    CUDA_VISIBLE_DEVICES=MIG-GPU-0294.../1/0    the older form, which names the device
    CUDA_VISIBLE_DEVICES=0,-1,2           an entry that is no device ends the list

Sources: "CUDA Environment Variables" in the CUDA programming guide; amd_filter_device.cpp of ROCm's
runtime (ROCR), which reads the same but ends the list at a repeated entry, where CUDA treats the
whole list as empty; the Level Zero specification.
"""

from __future__ import annotations

from spawnlaunch.base import reading, records
from spawnlaunch.node import hardware
from spawnlaunch.node.devices import BY_VENDOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    Selection: TypeAlias = "tuple[Sequence[Slot], list[str], list[str]]"

Slot = hardware.Device | None  # None: some device, but it is not known which

CUDA = "CUDA_VISIBLE_DEVICES"
CUDA_ORDER = "CUDA_DEVICE_ORDER"
HIP = "HIP_VISIBLE_DEVICES"
ROCR = "ROCR_VISIBLE_DEVICES"  # selects first, from the devices that KFD shows
WITHIN_ROCR = (HIP, CUDA, "GPU_DEVICE_ORDINAL")  # the first that is set selects from ROCR's
# Of CUDA and ROCm: lists that show a process some devices only, in their order.
UUIDS = ("GPU-", "MIG-")
DEVICE_LISTS = (CUDA, HIP, ROCR)
ZE_MASK = "ZE_AFFINITY_MASK"  # a set: the order stays the driver's
ZE_HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"  # FLAT unless set: each tile is a device

# Tells workers the vendor of the launch's devices, where --nproc names it.
DEVICES_OF = "SPAWNLAUNCH_DEVICES_OF"
_HIDES_ALL = ("", "-1")  # the usual ways to ask for no device
MOST_DEVICES = 64  # assumed for a node where they cannot be counted
_TWICE = "names a device twice"
# The files that a process opens to use a device.
_FILES = {"nvidia": "/dev/nvidia<N>", "amd": "/dev/dri/renderD<N>", "intel": "/dev/dri/renderD<N>"}


class Visible(records.NamedTuple):
    """The devices that a worker sees, in the order in which it counts them."""

    devices: tuple[int | None, ...]  # numbers of Node.devices; None: it is not known which
    source: str  # the variables that decided, such as "CUDA_VISIBLE_DEVICES"; empty: none is set
    warnings: tuple[str, ...]
    names: tuple[str, ...] = ()  # of the devices in `variable`; also where /sys shows none of them
    variable: str = CUDA  # the variable that can show a worker one device only
    vendor: str = ""  # of the devices, or of those that are here and not seen; "": not known
    asked: str = ""  # the vendor that --nproc names
    why: str = ""  # why no device is seen, where the node has some
    unset: tuple[str, ...] = ()  # the variables without which a worker would see some
    meant: str = ""  # a corrected assignment where a value is no list: CUDA_VISIBLE_DEVICES=0,1

    def device_of(self, local_rank: int) -> int | None:
        """The number of a local rank's device: rank r has the r-th one, modulo their number.

        None: there is none, or it is not known which.
        """
        return self.devices[local_rank % len(self.devices)] if self.devices else None

    def alone(self, local_rank: int) -> dict[str, object]:
        """The variable that shows the worker of a local rank its own device only.

        Where a variable hides all devices, they stay hidden.
        """
        if not self.names:
            return {} if self.source else {self.variable: local_rank}
        return {self.variable: self.names[local_rank % len(self.names)]}


def visible(node: hardware.Node, environ: Mapping[str, str], asked: str | None = None) -> Visible:
    """The devices that a worker with this environment sees on this node.

    They are of the vendor `asked`, if the node has any of it; None: of the vendor that the
    launcher of this worker was asked for.
    """
    if asked is None:
        asked = environ.get(DEVICES_OF, "")
    devices = [device for device in node.devices if device.vendor == asked] or node.devices
    usable = [device for device in devices if device.usable is not False]
    present = [vendor for vendor in hardware.VENDORS if any(d.vendor == vendor for d in devices)]
    open_to_us = [vendor for vendor in present if any(d.vendor == vendor for d in usable)]
    if not open_to_us:
        return _none_visible(devices, present, environ)._replace(asked=asked)
    chosen = open_to_us[0]
    warnings = [_closed(devices, vendor) for vendor in present[: present.index(chosen)]]
    if len(open_to_us) > 1:
        warnings.append(f"devices of {' and '.join(open_to_us)}: those of {chosen} are taken")
    mine = sorted((d for d in usable if d.vendor == chosen), key=lambda d: d.ordinal or 0)
    see = OF_VENDORS.get(chosen, _by_accelerator)
    slots, variables, names = see(mine, environ, warnings)
    numbers = tuple(None if slot is None else slot.number for slot in slots)
    source, variable = ", ".join(filter(environ.__contains__, variables)), variables[-1]
    names = names or _entries(environ.get(variable, ",".join(map(str, range(len(slots))))))
    meant = _mend(warnings, [name for name in variables if name in environ], environ, len(mine))
    result = Visible(
        numbers, source, tuple(warnings), tuple(names[: len(slots)]), variable, chosen, asked,
        meant=meant,
    )  # fmt: skip
    return result if slots else _none_selected(node, environ, result, len(mine))


def _none_selected(
    node: hardware.Node, environ: Mapping[str, str], result: Visible, count: int
) -> Visible:
    """Add why the variable selects none of `count` devices, and how to see some."""
    variable, warnings = result.variable, result.warnings
    set_to = f"{variable}={environ[variable]}"
    others = {name: value for name, value in environ.items() if name != variable}
    unset = (variable, *visible(node, others, result.asked).unset)
    why = next((line for line in warnings if set_to in line), "")
    if why:
        cure = why if result.meant else f"{why}, so no device is visible; unset {' '.join(unset)}"
        warnings = tuple(cure if line == why else line for line in warnings)
    else:
        why = f"{set_to} hides {_counted(count, result.vendor)}"
    return result._replace(warnings=warnings, why=why, unset=unset)


def _mend(warnings: list[str], names: Sequence[str], environ: Mapping[str, str], count: int) -> str:
    """Return the corrected assignment for a value such as 0-1; add it to that warning."""
    for i, line in enumerate(warnings):
        for name in names:
            if not line.startswith(f"{name}={environ[name]}: "):
                continue
            if correction := corrected(environ[name], count):
                warnings[i] = f"{line}; export {name}={correction}"
                return f"{name}={correction}"
    return ""


def corrected(value: str, count: int) -> str:
    """Return the list that a value means, of the numbers of `count` devices; "": not certain.

    >>> corrected("0-2", 4), corrected("ALL", 2), corrected("['0' 1]", 2), corrected("hip:1", 2)
    ('0,1,2', '0,1', '0,1', '1')
    >>> corrected("NoDevFiles", 4), corrected("0-7", 4), corrected("0,0", 4)
    ('', '', '')
    """
    import re  # few variables have such a value

    if value.strip().lower() in ("all", "any", "*"):
        return ",".join(map(str, range(count)))
    plain = re.sub(r"[\s\[\]{}()\"']+", " ", value)
    plain = re.sub(r"(?i)(cuda|gpu|hip|rocm|xpu|npu|device|dev)[:_=]?(?=\d)", "", plain)
    plain = re.sub(r"\s*(-|\.\.)\s*", "-", plain)
    numbers: list[int] = []
    for entry in re.findall(r"[^,;:|\s]+", plain):
        span = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", entry)
        if span is None:
            return ""
        numbers += range(int(span[1]), int(span[2] or span[1]) + 1)
    is_list = numbers and max(numbers) < count and len(set(numbers)) == len(numbers)
    return ",".join(map(str, numbers)) if is_list else ""


def _counted(count: int, vendor: str) -> str:
    return f"{'all ' * (count > 1)}{count} device{'s' * (count > 1)} of {vendor}"


def counting_cpus(result: Visible, why: str) -> Visible:
    """Replace the line with the reason by one that says that --nproc auto counts CPUs."""
    others = (line for line in result.warnings if why not in line)
    line = f"--nproc auto counts CPUs, for no device is visible: {why}"
    return result._replace(warnings=(*others, line))


def _closed(devices: Sequence[hardware.Device], vendor: str) -> str:
    """The line for a vendor with devices of which this process can open none."""
    file = _FILES.get(vendor) or f"/dev/{BY_VENDOR[vendor].files[0]}<N>"
    count = sum(1 for device in devices if device.vendor == vendor)
    return f"no {file} can be opened for {_counted(count, vendor)}"


def _none_visible(
    devices: Sequence[hardware.Device], present: Sequence[str], environ: Mapping[str, str]
) -> Visible:
    """The result where no device can be used, or where only a variable names some.

    A resource manager may assign devices that /sys does not show, as in some containers.
    """
    variable = next((name for name in DEVICE_LISTS if name in environ), "")
    if devices:
        why = _closed(devices, present[0])
        return Visible((), variable, (why,), vendor=present[0], why=why)
    if not variable:
        return Visible((), variable, ())
    value = environ[variable]
    missing = f"{variable}={value} names devices, and /sys shows none on this node"
    tokens = _entries(value)
    # The entries before the first that can be no device, as -1 and Slurm's NoDevFiles.
    can_be = [each[:1].isdigit() or each.upper().startswith(UUIDS) for each in tokens]
    names = tuple(tokens[: [*can_be, False].index(False)])
    lines = [missing] if names else []
    if value.strip().lower() != "all" and any(not _is_single(each) for each in tokens):
        lines = [f"{variable}={value}: this is not a list of devices, with commas"]
    meant = _mend(lines, [variable], environ, MOST_DEVICES)
    return Visible((), variable, tuple(lines), names, variable, meant=meant)


# Each of these returns the devices, the variables that decide (the last may be unset), and the
# devices' names in the last one: empty where these are its entries unchanged, or numbers.


def _by_cuda(
    base: Sequence[hardware.Device], environ: Mapping[str, str], warnings: list[str]
) -> Selection:
    """CUDA numbers devices by address, unless the user sets another order.

    Workers get CUDA_DEVICE_ORDER=PCI_BUS_ID. CUDA's own default puts the fastest first, which
    matters where the devices are of several models.
    """
    slots: Sequence[Slot] = base
    order = environ.get(CUDA_ORDER, "PCI_BUS_ID")
    if len({device.model for device in base}) > 1:
        if order == "PCI_BUS_ID":
            warnings.append(
                "the devices are not all of one model: they are numbered by PCI address "
                f"({CUDA_ORDER}=PCI_BUS_ID), not the fastest first"
            )
        else:
            slots = [None] * len(base)
            warnings.append(
                f"{CUDA_ORDER}={order} numbers devices of several models in an order that is not "
                "known here; set it to PCI_BUS_ID"
            )
    if CUDA in environ:
        slots = _listed(CUDA, environ[CUDA], slots, warnings)
        # A process sees one slice, even if the variable lists several (NVIDIA MIG user guide).
        if environ[CUDA].upper().count("MIG-") > 1:
            warnings.append(
                f"{CUDA} lists several MIG slices and a process sees the first alone, unless "
                "--virtual-local-rank gives each rank one"
            )
    return slots, [CUDA], []


def _by_rocm(
    base: Sequence[hardware.Device], environ: Mapping[str, str], warnings: list[str]
) -> Selection:
    outer = [ROCR] if ROCR in environ else []
    slots = _listed(ROCR, environ[ROCR], base, warnings) if outer else base
    inner = next((name for name in WITHIN_ROCR if name in environ), None)
    if inner is None or not slots:
        return slots, outer or [CUDA], []
    lines: list[str] = []
    within = _listed(inner, environ[inner], slots, lines)
    if outer and not within and lines and _TWICE not in lines[0]:
        lines = [
            f"{ROCR}={environ[ROCR]} leaves {len(slots)}, of which {inner}={environ[inner]} "
            "selects none, for it counts from 0 within them"
        ]
    warnings += lines
    return within, [*outer, inner], []


def _by_level_zero(
    base: Sequence[hardware.Device], environ: Mapping[str, str], warnings: list[str]
) -> Selection:
    composite = environ.get(ZE_HIERARCHY, "FLAT").upper() == "COMPOSITE"
    cards = list({device.address: device for device in reversed(base)}.values())[::-1]
    whole = cards if composite else list(base)
    if not environ.get(ZE_MASK):
        return whole, [ZE_MASK], [*map(str, range(len(whole)))]

    def named(token: str) -> hardware.Device | None:
        number, dot, tile = token.partition(".")
        device = _nth(number, cards if dot else whole)
        tiles = [each for each in base if device and each.address == device.address]
        return _nth(tile.split(".")[0], tiles) if dot else device

    entries = [(token, named(token)) for token in _entries(environ[ZE_MASK])]
    if bad := [token for token, device in entries if not device]:
        warnings.append(
            f"{ZE_MASK}={environ[ZE_MASK]}: no device {', '.join(bad)}; devices to choose from: "
            f"{len(whole)}"
        )
    tokens: dict[hardware.Device, list[str]] = {}
    for device, token in sorted((device, token) for token, device in entries if device):
        # In COMPOSITE mode a card is one device, even with several tiles in the list.
        same = [each for each in tokens if composite and each.address == device.address]
        tokens.setdefault([*same, device][0], []).append(token)
    return [*tokens], [ZE_MASK], [*map(",".join, tokens.values())]


def _by_accelerator(
    base: Sequence[hardware.Device], environ: Mapping[str, str], warnings: list[str]
) -> Selection:
    kind = BY_VENDOR[base[0].vendor]
    slots: Sequence[Slot] = base
    if kind.variable in environ:
        slots = base if kind.by_position else [None] * len(base)
        slots = _listed(kind.variable, environ[kind.variable], slots, warnings)
    return slots, [kind.variable], []


OF_VENDORS = {"nvidia": _by_cuda, "amd": _by_rocm, "intel": _by_level_zero}


def _nth(token: str, devices: Sequence[hardware.Device]) -> hardware.Device | None:
    return devices[int(token)] if reading.is_number(token) and int(token) < len(devices) else None


def _listed(variable: str, value: str, base: Sequence[Slot], warnings: list[str]) -> Sequence[Slot]:
    """The devices of `base`, which is in the runtime's order, that the variable's value lists."""
    chosen: list[Slot] = []
    # CUDA's first entry decides between numbers and UUIDs; a list ends before an entry of the other
    # kind (seen on an H100).
    has_uuids = value.strip().startswith(UUIDS)
    for token in _entries(value):
        is_of_another_kind = variable == CUDA and token.startswith(UUIDS) != has_uuids
        devices = () if is_of_another_kind else _named(variable, token, base)
        if not devices:
            if token not in _HIDES_ALL:
                warnings.append(
                    f"{variable}={value}: {token!r} names no device and ends the list; devices to "
                    f"choose from: {len(base)}"
                )
            return chosen
        if devices[0] in chosen and devices[0] is not None and not token.startswith("MIG-"):
            fate = "ends there" if variable == ROCR else "selects no device"
            warnings.append(
                f"{variable}={value} {_TWICE} and {fate}; devices to choose from: {len(base)}"
            )
            return chosen if variable == ROCR else []
        chosen += devices
        if not _is_single(token):
            warnings.append(
                f"{variable}={value}: {token!r} is not a list, and a runtime reads one device of it"
            )
    return chosen


def _is_single(entry: str) -> bool:
    """Whether an entry is one number, perhaps with letters after it, or one word.

    0-1 and '0 1' look like several.
    """
    return not (entry[:1].isdigit() and any(each in entry for each in "-:;| \t"))


def _entries(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",")]


def _named(variable: str, token: str, base: Sequence[Slot]) -> Sequence[Slot]:
    """The one device that an entry of a list names; empty where it names none.

    A MIG slice is part of a device, and its own UUID does not show of which. CUDA accepts no UUID
    in capitals (seen on an H100).
    """
    case = str if variable == CUDA else str.upper
    entry = case(token)
    is_slice = entry.startswith("MIG-")
    uuid = entry.removeprefix("MIG-").split("/")[0] if is_slice else entry
    unknown = base if len(base) < 2 else [None]
    if uuid.startswith("GPU-"):  # the beginning of one UUID, which may be that of a device
        known = [(each, case(each.uuid)) for each in base if each and each.uuid is not None]
        matches = [device for device, full in known if full.startswith(uuid)]
        if len(matches) == 1:
            return matches
        return () if matches or len(known) == len(base) else unknown
    if is_slice:
        return unknown
    rest = token.removeprefix("+")  # the C library's strtoul reads the digits at the beginning
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return base[int(digits) :][:1] if reading.is_number(digits) else ()
