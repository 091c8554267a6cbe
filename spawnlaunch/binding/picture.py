"""Draw a node for a terminal: packages, NUMA nodes, L3 groups, and cores with their ranks.

    package 0
      numa 3  126 GiB                                  gpu 2 0000:ca:00.0
        l3 48-55,112-119           00000022            gpu 0 0000:c1:00.0
        l3 56-63,120-127           11111122            gpu 1 0000:c6:00.0

Each character is a core: the letter of the rank that is bound to it. Devices and network adapters
stand beside the smallest domain that they are next to. Colours only repeat the letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest

from spawnlaunch.base import cpuset
from spawnlaunch.binding import apply, placement
from spawnlaunch.node import hardware

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
FREE, FORBIDDEN, SHARED, MANY = ".", "-", "*", "#"
LEGEND = (
    f"a letter is a core and its local rank (a is 10, A is 36)   {SHARED} several ranks",
    f"{FREE} no rank   {FORBIDDEN} not allowed",
)

# Numbers in the 256-colour palette (xterm's control sequences), readable on black and on white.
_COLOURS = (33, 166, 34, 161, 37, 98, 136, 31, 124, 64, 129, 30, 172, 25, 168, 70)
_COLOUR, _RESET = "\033[38;5;{}m", "\033[0m"

_LIST = 23  # columns for the CPU list of a group
_WORD, _RUN = 8, 16  # cores between spaces, and cores on a line
_CORES = len("    l3 ") + _LIST + 1  # the column in which cores begin
_BESIDE = _CORES + _RUN + 3  # the column of devices and adapters


def picture(
    node: hardware.Node,
    bindings: Sequence[apply.Binding],
    allowed: cpuset.CpuSet,
    colour: bool = False,
) -> str:
    """Return the drawing, at most 80 columns wide."""
    drawing = _Drawing(node, _letters(node, bindings, allowed), colour)
    return "\n".join([*drawing.lines(), "", *LEGEND])


def letter(local_rank: int) -> str:
    """The character of a rank; from the 63rd rank on all ranks have the same."""
    return LETTERS[local_rank] if local_rank < len(LETTERS) else MANY


def _letters(
    node: hardware.Node, bindings: Sequence[apply.Binding], allowed: cpuset.CpuSet
) -> dict[int, str]:
    """The character of each CPU."""
    letters = {cpu: FREE if cpu in allowed else FORBIDDEN for cpu in node.cpus_online}
    for binding in bindings:
        for cpu in binding.cpus:
            taken = letters.get(cpu, FREE) != FREE
            letters[cpu] = SHARED if taken else letter(binding.local_rank)
    return letters


def _coloured(cores: str) -> str:
    """Colour those characters of cores that stand for ranks."""
    painted = []
    for character, run in groupby(cores):
        text = "".join(run)
        if character in LETTERS:
            code = _COLOURS[LETTERS.index(character) % len(_COLOURS)]
            text = _COLOUR.format(code) + text + _RESET
        painted.append(text)
    return "".join(painted)


class _Drawing:
    """A drawing, made from the inside out, so that each device is beside its smallest domain."""

    def __init__(self, node: hardware.Node, letters: dict[int, str], colour: bool) -> None:
        self._node = node
        self._letters = letters
        self._colour = colour
        self._waiting: list[tuple[str, cpuset.CpuSet | None]] = [
            *(
                (placement.device_name(node, device.number), device.local_cpus)
                for device in node.devices
            ),
            *((f"nic {nic.name}", nic.local_cpus) for nic in node.nics),
        ]

    def lines(self) -> Iterator[str]:
        parts: list[str] = []
        packages = self._node.packages
        for number, package in enumerate(packages or (self._node.cpus_online,)):
            title = f"package {number}" if packages else "packages not known"
            parts += self._domain(title, package, self._numa(package))
        beside = self._beside(self._node.cpus_online)
        if beside:
            yield from _headed("machine", beside)
        yield from parts
        apart = [each.id for each in self._node.numa if not each.cpus]
        if apart:
            yield f"numa {cpuset.format(apart)}: no CPUs"
        for i, kind in enumerate(self._node.kinds):
            yield f"{'slower' if i else 'fastest'} cores ({kind.name}): {cpuset.format(kind.cpus)}"
        yield from (f"{name}: place not known" for name, _ in self._waiting)

    def _numa(self, package: cpuset.CpuSet) -> Iterator[str]:
        for numa in self._node.numa:
            if cpus := numa.cpus & package:
                size = "" if numa.memory is None else f"  {numa.memory / 2**30:.0f} GiB"
                yield from self._domain(f"  numa {numa.id}{size}", cpus, self._groups(cpus))
        rest = package.difference(*(numa.cpus for numa in self._node.numa))
        if rest:
            yield from self._domain("  numa not known", rest, self._groups(rest))

    def _domain(self, title: str, cpus: cpuset.CpuSet, inside: Iterator[str]) -> Iterator[str]:
        parts = list(inside)
        yield from _headed(title, self._beside(cpus))
        yield from parts

    def _groups(self, cpus: cpuset.CpuSet) -> Iterator[str]:
        groups = [group & cpus for group in self._node.l3 if group & cpus]
        for group in groups:
            yield from self._group("l3", group)
        rest = cpus.difference(*groups)
        if rest:
            yield from self._group("  ", rest)

    def _group(self, name: str, cpus: cpuset.CpuSet) -> Iterator[str]:
        """Yield a group's lines: a run of its cores on each, devices and adapters beside them."""
        drawn = "".join(self._core(core & cpus) for core in self._node.cores if core & cpus)
        runs = [drawn[i : i + _RUN] for i in range(0, len(drawn), _RUN)]
        listed = cpuset.format(cpus)
        listed = listed if len(listed) <= _LIST else f"{listed[: _LIST - 2]}.."
        label = f"    {name} {listed}"
        for run, beside in zip_longest(runs, self._beside(cpus), fillvalue=""):
            words = " ".join(run[i : i + _WORD] for i in range(0, len(run), _WORD))
            cores = f"{words:{_BESIDE - _CORES}}"
            cores = _coloured(cores) if self._colour else cores
            yield f"{label:{_CORES}}{cores}{beside}".rstrip()
            label = ""

    def _core(self, threads: cpuset.CpuSet) -> str:
        """The character of a core: its rank's, even if some of its threads are free."""
        letters = {self._letters[cpu] for cpu in threads} - {FREE, FORBIDDEN}
        if len(letters) > 1:
            return SHARED
        return letters.pop() if letters else min(self._letters[cpu] for cpu in threads)

    def _beside(self, domain: cpuset.CpuSet) -> list[str]:
        """Take the devices and adapters next to the domain that are not drawn yet."""
        here = [(name, cpus) for name, cpus in self._waiting if cpus and cpus <= domain]
        self._waiting = [each for each in self._waiting if each not in here]
        return [name for name, _ in here]


def _headed(title: str, beside: Sequence[str]) -> Iterator[str]:
    """Yield a title, with the devices and adapters of its whole domain in their column."""
    for name in beside or [""]:
        yield f"{title:{_BESIDE}}{name}".rstrip()
        title = ""
