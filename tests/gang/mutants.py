"""Faults that are put into the rules, each of which the simulation must find.

A rule whose fault nobody notices is not needed, or is not tested.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import spawnlaunch.gang as package

NAMES = ("verdict", "roster", "phases", "hub", "member")  # in the order in which they import


class Mutant(NamedTuple):
    """One line of the rules, and what is there instead."""

    rule: str
    module: str
    line: str
    instead: str
    seed: int | None = None  # that finds it
    test: str = ""  # of test_rules, which finds it where no seed does


MUTANTS = (
    Mutant('fence after a loss', 'hub', 'fences=(*hub.fences, fence)', 'fences=hub.fences', 712),
    Mutant('a certain loss has a fence too', 'hub', 'CERTAIN_S = 0.5', 'CERTAIN_S = 0.0', 1862),
    Mutant('the fence has the grace in it', 'hub', 'phases.NOTICE_S + hub.settings.longest_grace_s\n', 'phases.NOTICE_S\n', 712),
    Mutant("another epoch's word is ignored", 'hub', 'message.epoch != hub.epoch or ', '', 13),
    Mutant('epochs begin above what was seen', 'phases', 'max(hub.epoch, hub.floor) + 1', 'hub.epoch + 1', 110),
    Mutant('all stop before others start', 'phases', 'all(node.state == IDLE for node in hub.nodes.values())', 'True', 63),
    Mutant('a lost hub fences', 'member', 'if member.state == RUNNING:\n        actions.append(Halt(cause, member.rules.failure_grace_s))\n    actions.append(Note("hub lost"))', 'actions.append(Note("hub lost"))', 239),
    Mutant('the budget', 'verdict', 'used < settings.max_restarts', 'used <= settings.max_restarts', 5),
    Mutant('first by its time', 'verdict', 'at - told.age_s', 'at', 521),
    Mutant('victims are not first', 'verdict', '(failure.is_victim, failure.when)', 'failure.when', 613),
    Mutant('a time to join', 'phases', 'if at >= hub.since + hub.settings.join_s:', 'if False:', 78),
    Mutant('a time to seek', 'member', 'if at >= member.since + member.join_s:', 'if False:', 0),
    Mutant('a start is begun once, where nothing runs', 'member', 'if member.state != JOINED or start.epoch <= member.hello.epoch:', 'if False:', 5),
    Mutant('stale stops', 'member', 'if stop.epoch != member.hello.epoch:', 'if False:', 13),
    Mutant('orphans of another hub', 'phases', 'if not are_all_back and at < _free(hub):', 'if False:', 554),
    Mutant('a hub that knows of none before it', 'phases', 'if hub.epoch or not settings.returns:', 'if True:', test="test_a_hub_that_may_have_returned_waits_for_workers_of_before"),
    Mutant('the frozen are given up', 'hub', 'if at - node.heard >= hub.settings.dead_s:', 'if False:', 71),
    Mutant('a clock that jumps', 'hub', 'max(0.0, passed - STRIDE_S) + min(0.0, passed)', '0.0', 237),
    Mutant('not more than most', 'roster', '[:most]', '[:]', 1),
    Mutant('ranks without holes', 'roster', 'firsts[-1] + nodes[conn].hello.nproc', 'firsts[-1] + 1', 0),
    Mutant('enough nodes', 'phases', 'count >= hub.settings.least and ', '', 8),
    Mutant('signals reach all', 'hub', 'if hub.phase == RUNNING and (node.state != IDLE or node.local):', 'if False:', 2),
    Mutant('done at the end', 'phases', '    if not busy:\n', '    if False:\n', 7),
    Mutant('a stop for those who are done', 'member', 'if member.state == DONE:\n', 'if False:\n', 26),
    Mutant('a port of its own', 'hub', 'hello._replace(port=port)', 'hello', 13),
    Mutant('told to end while it stops', 'phases', '        if any(node.leaving for node in hub.nodes.values()):\n            can_go_on = can_go_on and settings.is_elastic and _is_enough(hub)\n', '', 820),
    Mutant('a newcomer restarts', 'phases', 'newcomers and hub.size < hub.settings.most', 'False', 25),
    Mutant('half of the last nodes', 'phases', ' and 2 * count >= hub.size', '', test="test_less_than_half_of_the_last_nodes_begin_nothing"),
    Mutant('silence of all', 'phases', 'if not all(node.silent for node in busy):', 'if not any(node.silent for node in busy):', 6),
    Mutant('one who talks again', 'hub', 'hub._replace(nodes=nodes, asked=None)', 'hub._replace(nodes=nodes)', 41),
    Mutant('node ranks stay', 'roster', 'if 0 <= here[conn].rank < len(order):', 'if False:', 25),
    Mutant('a final status', 'verdict', 'status(cause) in settings.final', 'False', 458),
    Mutant('the time of the launch', 'phases', 'at >= hub.began + limit_s', 'False', 13),
    Mutant('the window', 'verdict', '0 < settings.window_s <= healthy_s', 'settings.window_s', test="test_the_budget_is_full_again_after_a_window_of_health"),
    Mutant('another version', 'roster', 'hello.version != VERSION', 'False', 102),
    Mutant('two of one node rank', 'roster', 'node.hello.rank == hello.rank and ', 'False and ', test="test_why_one_is_refused"),
    Mutant('flags that must agree', 'roster', 'flag in MUST_AGREE and ', 'False and ', test="test_why_one_is_refused"),
    Mutant('done is done', 'hub', 'if node.state != BUSY or hub.phase == ENDED:', 'if hub.phase == ENDED:', test="test_all_who_are_done_end_well_though_one_is_lost_then"),
    Mutant('a lost node made victims', 'verdict', 'if failure.is_victim and lost:', 'if False:', test="test_a_victim_is_not_the_cause_where_a_node_was_lost"),
    Mutant('a reboot ends a fence', 'hub', 'hello.host == fence.host and hello.boot != fence.boot', 'False', test="test_a_machine_that_was_started_again_is_waited_for_no_more"),
    Mutant('the hub has no beat of a frozen launcher', 'member', 'if at >= member.heard + member.rules.dead_s:', 'if False:', 16),
    Mutant('one status for a signal', 'verdict', 'return 128 + cause.number', 'return 1', test="test_the_status_of_a_signal"),
    Mutant('a second signal is at once', 'hub', 'if again and hub.phase == STOPPING:', 'if False:', test="test_a_second_signal_waits_for_nobody"),
    Mutant('the near hear the end', 'phases', 'late = hub.settings.total - len(hub.nodes)', 'late = 0', test="test_a_hub_that_is_told_to_end_at_once_stays_for_those_who_are_near"),
    Mutant('a hub stays for a while only', 'hub', '(hub.late <= 0 or at >= hub.until)', 'hub.late <= 0', test="test_a_hub_does_not_stay_for_ever"),
    Mutant('an old hub does not stay', 'phases', 'hub.since + min(YOUNG_S, hub.settings.join_s)', 'at + NEAR_S', test="test_a_hub_that_was_waited_for_long_ends_at_once"),
    Mutant('the hub hears of one that ends as it comes', 'member', 'hello=member.hello._replace(leaving=member.leaving)', 'hello=member.hello', test="test_a_launcher_that_is_told_to_end_as_it_comes_tells_the_hub"),
    Mutant('one that comes to end is not begun with', 'hub', '    if hello.leaving:\n', '    if False:\n', test="test_a_hub_that_is_told_to_end_at_once_stays_for_those_who_are_near"),
    Mutant('a signal waits for no hub', 'member', 'if member.leaving and member.state == GREETING and at >= member.left + WORD_S:', 'if False:', test="test_a_launcher_that_is_told_to_end_waits_for_no_hub"),
    Mutant('no hub, nobody to tell', 'member', 'if member.leaving:  # there is nobody to tell', 'if False:', test="test_a_launcher_that_is_told_to_end_tries_once_more_to_find_a_hub"),
)  # fmt: skip


def source(name: str) -> str:
    return (Path(package.__path__[0]) / f"{name}.py").read_text()


def rules(mutant: Mutant | None = None) -> tuple[ModuleType, ModuleType]:
    """Copies of hub and member, with a fault in them."""
    sources: dict[str, str | ast.Module] = {}
    if mutant:
        text = source(mutant.module)
        assert text.count(mutant.line) == 1, mutant
        sources[mutant.module] = text.replace(mutant.line, mutant.instead)
    copies = copied(sources)
    return copies["hub"], copies["member"]


def copied(sources: Mapping[str, str | ast.Module], **names: Any) -> dict[str, ModuleType]:
    """Copies of the rules' modules, made of other sources than their own where one is given."""
    copies: dict[str, ModuleType] = {}
    for name in NAMES:
        copy = ModuleType(f"{package.__name__}.{name}")
        copy.__dict__.update(names)
        exec(compile(sources.get(name, source(name)), f"{name}.py", "exec"), copy.__dict__)
        for other in copies:
            if hasattr(copy, other):
                setattr(copy, other, copies[other])
        copies[name] = copy
    return copies
