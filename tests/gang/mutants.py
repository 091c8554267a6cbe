"""Faults that are put into the rules, each of which the simulation must find.

A rule whose fault nobody notices is not needed, or is not tested.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import spawnlaunch.gang as package

NAMES = ("verdict", "roster", "phases", "hub", "member")  # in the order in which they import


class Mutant(NamedTuple):
    """One line of the rules, and what is there instead."""

    rule: str
    module: str
    line: str
    instead: str
    seed: int | None = None  # that finds it; None: not yet


MUTANTS = (
    Mutant('fence after a loss', 'hub', 'fences=(*hub.fences, fence)', 'fences=hub.fences', 1250),
    Mutant('a certain loss has a fence too', 'hub', 'CERTAIN_S = 0.5', 'CERTAIN_S = 0.0', 1329),
    Mutant('the fence has the grace in it', 'hub', 'phases.NOTICE_S + hub.settings.longest_grace_s\n', 'phases.NOTICE_S\n', 1493),
    Mutant("another epoch's word is ignored", 'hub', 'message.epoch != hub.epoch or ', '', 13),
    Mutant('epochs begin above what was seen', 'phases', 'max(hub.epoch, hub.floor) + 1', 'hub.epoch + 1', 148),
    Mutant('all stop before others start', 'phases', 'all(node.state == IDLE for node in hub.nodes.values())', 'True', 46),
    Mutant('a lost hub fences', 'member', 'if member.state == RUNNING:\n        actions.append(Halt(cause, member.rules.failure_grace_s))\n    actions.append(Note("hub lost"))', 'actions.append(Note("hub lost"))', 110),
    Mutant('the budget', 'verdict', 'used < settings.max_restarts', 'used <= settings.max_restarts', 1),
    Mutant('first by its time', 'verdict', 'at - told.age_s', 'at', 9),
    Mutant('victims are not first', 'verdict', '(failure.is_victim, failure.when)', 'failure.when', 2529),
    Mutant('a time to join', 'phases', 'if at >= hub.since + hub.settings.join_s:', 'if False:', 87),
    Mutant('a time to seek', 'member', 'if at >= member.since + member.join_s:', 'if False:', 11),
    Mutant('a start is begun once, where nothing runs', 'member', 'if member.state != JOINED or start.epoch <= member.hello.epoch:', 'if False:', 6),
    Mutant('stale stops', 'member', 'if stop.epoch != member.hello.epoch:', 'if False:', 13),
    Mutant('orphans of another hub', 'phases', 'if not are_all_back and at < _free(hub):', 'if False:', 1823),
    Mutant('a hub that knows of none before it', 'phases', 'if hub.epoch == 0 and settings.returns:', 'if False:', 61894),
    Mutant("a hub's lost time", 'hub', 'hello.epoch or hello.lost_s', 'False'),
    Mutant('the frozen are given up', 'hub', 'if at - node.heard >= hub.settings.dead_s:', 'if False:', 226),
    Mutant('a clock that jumps', 'hub', 'max(0.0, passed - STRIDE_S) + min(0.0, passed)', '0.0', 75),
    Mutant('not more than most', 'roster', '[:most]', '[:]', 1),
    Mutant('ranks without holes', 'roster', 'firsts[-1] + nodes[conn].hello.nproc', 'firsts[-1] + 1', 0),
    Mutant('enough nodes', 'phases', 'count >= hub.settings.least and ', '', 8),
    Mutant('signals reach all', 'hub', 'if hub.phase == RUNNING and (node.state != IDLE or node.local):', 'if False:', 5),
    Mutant('done at the end', 'phases', '    if not busy:\n', '    if False:\n', 7),
    Mutant('a stop for those who are done', 'member', 'if member.state == DONE:\n', 'if False:\n', 30),
    Mutant('a port of its own', 'hub', 'hello._replace(port=port)', 'hello', 6),
    Mutant('told to end while it stops', 'phases', '        if any(node.leaving for node in hub.nodes.values()):\n            can_go_on = can_go_on and settings.is_elastic and _is_enough(hub)\n', ''),
    Mutant('a newcomer restarts', 'phases', 'newcomers and hub.size < hub.settings.most', 'False'),
)  # fmt: skip


def rules(mutant: Mutant | None = None) -> tuple[ModuleType, ModuleType]:
    """Copies of hub and member, with a fault in them."""
    copies: dict[str, ModuleType] = {}
    for name in NAMES:
        real = importlib.import_module(f"{package.__name__}.{name}")
        assert real.__file__
        text = Path(real.__file__).read_text()
        if mutant and mutant.module == name:
            assert text.count(mutant.line) == 1, mutant
            text = text.replace(mutant.line, mutant.instead)
        copy = ModuleType(real.__name__)
        exec(compile(text, real.__file__, "exec"), copy.__dict__)
        for other in copies:
            if hasattr(copy, other):
                setattr(copy, other, copies[other])
        copies[name] = copy
    return copies["hub"], copies["member"]
