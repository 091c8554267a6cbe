"""The node's picture as SVG, from --explain=json: the cores and the device of every rank.

A square is a core with the local rank that is bound to it, in its colour; grey is a core of no
rank, an x one that may not be used. Squares stand in boxes: NUMA node, L3 group. A device stands
beside the NUMA node that it is next to, with the rank that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from spawnlaunch.base import cpuset
from spawnlaunch.watch import charts

CORE, GAP, PAD, TITLE = 22, 3, 6, 15
IN_A_ROW = 16
DEVICE_WIDTH = 190
WIDE = 640
STYLE = (
    "<style>text{font:11px sans-serif;fill:#222}.core{stroke:#555}.box{fill:none;stroke:#999}"
    ".letter{font-weight:bold;fill:#fff}</style>"
)


class _Core(NamedTuple):
    cpus: frozenset[int]
    ranks: Sequence[int]  # local
    allowed: bool


def picture(node: Mapping[str, Any], workers: Sequence[Mapping[str, Any]], host: str) -> str:
    """The drawing; `node` and `workers` as --explain=json has them."""
    cores = _cores(node, workers)
    drawn = [STYLE, charts.text(PAD, 14, f"{host}: a square is a core with its local rank")]
    y = 22.0
    taken = {w["device"]["index"]: w["local_rank"] for w in workers if w["device"]}
    waiting = list(node["devices"])
    l3 = [cpuset.parse(each) for each in node["l3"]]
    for title, cpus in _domains(node):
        here = [core for core in cores if core.cpus & cpus]
        local = [(each, cpuset.parse(each["local_cpus"] or "")) for each in waiting]
        beside = [each for each, its_cpus in local if its_cpus and its_cpus <= cpus]
        waiting = [each for each in waiting if each not in beside]
        by_l3 = [[core for core in here if core.cpus & group] for group in l3]
        by_l3.append([core for core in here if not any(core.cpus & group for group in l3)])
        part, height = _domain(title, [each for each in by_l3 if each], beside, taken, y)
        drawn += part
        y += height + GAP
    for device in waiting:
        drawn.append(charts.text(PAD, y + 12, f"{_named(device, taken)}: place not known"))
        y += TITLE
    return charts.svg(WIDE, y + PAD, drawn, f"the cores and devices of {host}, and who has them")


def _cores(node: Mapping[str, Any], workers: Sequence[Mapping[str, Any]]) -> list[_Core]:
    allowed = cpuset.parse(node["cpus_allowed"])
    bound = [(worker["local_rank"], cpuset.parse(worker["cpus"])) for worker in workers]
    cores = []
    for siblings in node["siblings"]:
        cpus = cpuset.parse(siblings)
        ranks = [rank for rank, mask in bound if mask & cpus]
        cores.append(_Core(cpus, ranks, bool(cpus & allowed) or not allowed))
    return cores


def _domains(node: Mapping[str, Any]) -> list[tuple[str, frozenset[int]]]:
    """The NUMA nodes with CPUs, each with its package; all CPUs where the nodes are not known."""
    packages = [cpuset.parse(each) for each in node["packages"]]
    domains = []
    for numa in node["numa"]:
        cpus = cpuset.parse(numa["cpus"])
        package = next((f"package {i}, " for i, each in enumerate(packages) if cpus & each), "")
        size = f", {numa['memory'] / 2**30:.0f} GiB" if numa["memory"] else ""
        if cpus:
            domains.append((f"{package}NUMA node {numa['id']}{size}", cpus))
    return domains or [("all CPUs", cpuset.parse(node["cpus_online"]))]


def _domain(
    title: str,
    groups: Sequence[Sequence[_Core]],
    devices: Sequence[Mapping[str, Any]],
    taken: Mapping[int, int],
    top: float,
) -> tuple[list[str], float]:
    """A NUMA node's box, and its height."""
    drawn = [charts.text(PAD * 2, top + 12, title)]
    y = top + TITLE + GAP
    for group in groups:
        rows = [group[i : i + IN_A_ROW] for i in range(0, len(group), IN_A_ROW)]
        height = len(rows) * (CORE + GAP) + GAP
        width = min(len(group), IN_A_ROW) * (CORE + GAP) + GAP
        drawn.append(_box(PAD * 2, y, width, height))
        for i, row in enumerate(rows):
            for j, core in enumerate(row):
                x = PAD * 2 + GAP + j * (CORE + GAP)
                drawn.append(_core(core, x, y + GAP + i * (CORE + GAP)))
        y += height + GAP
    at = top + TITLE + GAP
    for device in devices:
        rank = taken.get(device["index"])
        kind, fill = ("free", "#eee") if rank is None else _coloured(rank)
        x = WIDE - DEVICE_WIDTH - PAD
        drawn.append(
            f'<rect class="{kind} core" x="{x}" y="{at}" width="12" height="12" fill="{fill}"/>'
        )
        drawn.append(charts.text(x + 18, at + 10, _named(device, taken)))
        at += TITLE + GAP
    y = max(y, at)
    return [_box(PAD, top, WIDE - 2 * PAD, y - top + GAP), *drawn], y - top + GAP


def _named(device: Mapping[str, Any], taken: Mapping[int, int]) -> str:
    rank = taken.get(device["index"])
    owner = "" if rank is None else f" rank {rank}"
    return f"{device['kind']} {device['index']} {device['address']}{owner}"


def _coloured(rank: int) -> tuple[str, str]:
    return charts.kind(rank), charts.colour(rank)


def _box(x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="box" x="{x}" y="{y:.1f}" width="{width}" height="{height:.1f}" rx="3"/>'


def _core(core: _Core, x: float, y: float) -> str:
    letter = ",".join(map(str, core.ranks)) if len(core.ranks) < 3 else f"{len(core.ranks)}x"
    unused = ("free", "#ddd") if core.allowed else ("shut", "#fff")
    kind, fill = _coloured(core.ranks[0]) if core.ranks else unused
    words = f"CPUs {cpuset.format(core.cpus)}: " + (
        f"local rank {letter}" if core.ranks else "no rank" if core.allowed else "not allowed"
    )
    size = f' textLength="{CORE - 6}"' if len(letter) > 2 else ""
    inside = charts.text(x + CORE / 2, y + 15, letter or ("" if core.allowed else "x"), "middle",
                         f' class="{"letter" if letter else ""}"{size}')  # fmt: skip
    return (
        f'<g><title>{charts.words(words)}</title><rect class="{kind} core" x="{x}" y="{y:.1f}" '
        f'width="{CORE}" height="{CORE}" fill="{fill}" rx="2"/>{inside}</g>'
    )
