"""Lists of devices as CUDA and ROCm take them from the environment.

    CUDA_VISIBLE_DEVICES=2,0              positions, in the order in which the worker counts them
    CUDA_VISIBLE_DEVICES=GPU-029490c8     the beginning of a UUID that no other device has
    CUDA_VISIBLE_DEVICES=MIG-3f2a...      a slice of a device, by its own UUID
    CUDA_VISIBLE_DEVICES=MIG-GPU-0294.../1/0    the older form, which names the device
    CUDA_VISIBLE_DEVICES=0,-1,2           an entry that is no device ends the list

Sources: "CUDA Environment Variables" in the CUDA programming guide; amd_filter_device.cpp of ROCm's
runtime (ROCR), which takes the same but ends the list at an entry that was there before, where
CUDA takes the whole list for empty.
"""

from __future__ import annotations

from spawnlaunch.node.model import Device
from spawnlaunch.reading import is_number
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

Slot = Device | None  # None: a device is there, but it is not known which


class Selection(NamedTuple):
    """What a list selects."""

    devices: list[Slot]
    warning: str | None


class NotADevice(Exception):
    """An entry names no device."""


def select(variable: str, value: str, base: Sequence[Slot], repeat_empties: bool) -> Selection:
    """Apply the list `value` of a variable to the devices `base`, in their runtime's order."""
    chosen: list[Slot] = []
    for token in (entry.strip() for entry in value.split(",")):
        try:
            device = _device(token, base)
        except NotADevice:
            return Selection(chosen, _complaint(variable, value, token, len(base)))
        if device is not None and device in chosen:
            rest = [] if repeat_empties else chosen
            fate = "selects no device" if repeat_empties else "ends there"
            return Selection(rest, f"{variable}={value} names a device twice and {fate}")
        chosen.append(device)
    return Selection(chosen, None)


def _device(token: str, base: Sequence[Slot]) -> Slot:
    if token.upper().startswith("MIG-"):
        return _parent(token[4:], base)
    if token.upper().startswith("GPU-"):
        return _by_uuid(token, base)
    position = _leading_number(token)
    if position is None or not 0 <= position < len(base):
        raise NotADevice
    return base[position]


def _leading_number(token: str) -> int | None:
    """The number at the beginning, as the C library's strtoul would read it."""
    sign = -1 if token.startswith("-") else 1
    rest = token[1:] if token[:1] in ("-", "+") else token
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return sign * int(digits) if is_number(digits) else None


def _by_uuid(prefix: str, base: Sequence[Slot]) -> Slot:
    wanted = prefix.lower()
    known = [device for device in base if device is not None and device.uuid is not None]
    matches = [device for device in known if (device.uuid or "").lower().startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    if not matches and len(known) < len(base):
        return base[0] if len(base) == 1 else None
    raise NotADevice


def _parent(name: str, base: Sequence[Slot]) -> Slot:
    """The device that a MIG slice is part of; its own UUID does not say which."""
    if not base:
        raise NotADevice
    if name.upper().startswith("GPU-"):
        return _by_uuid(name.split("/")[0], base)
    return base[0] if len(base) == 1 else None


def _complaint(variable: str, value: str, token: str, count: int) -> str | None:
    """Nothing is said of an empty list or of -1, the usual ways to ask for no device."""
    if token in ("", "-1"):
        return None
    there = "there is no device" if count == 0 else f"there {_are(count)} to choose from"
    return f"{variable}={value}: {token!r} names no device and ends the list; {there}"


def _are(count: int) -> str:
    return "is one device" if count == 1 else f"are {count} devices"
