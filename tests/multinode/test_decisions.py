"""What the hub decides where generated schedules come seldom: who begins, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.multinode.playing import AGAIN, THREE, Gang

Says = dict[int, str]  # what launchers are told, in this order
POD = {**AGAIN, "is_restarted_by_manager": True}  # or is, by what has made it
ONE = {"least": 1, "most": 1}

# Settings, what happens, and what the launchers are told.
DECISIONS: dict[str, tuple[dict[str, Any], str, Says]] = {
    # Who begins, and as which node
    "another hub gives all the node ranks that they had": (
        AGAIN,
        "0 comes epoch=5 nodes=2 last_node_rank=1; 1 comes epoch=5 nodes=2 last_node_rank=0;"
        " wait 60",
        {0: "start 1/2", 1: "start 0/2"},
    ),
    "each has a place whatever node ranks were given": (
        {"least": 2, "most": 4, "max_restarts": 1, "last_call_s": 1.0},
        "2-3 come ranked; wait 2; 0 comes ranked; 2-3 are idle; wait 2",
        {
            2: "start 0/2, stop join node0, start 0/3",
            3: "start 1/2, stop join node0, start 1/3",
            0: "begun 1, start 2/3",
        },
    ),
    "who comes back has the node rank that it says": (
        {"least": 2, "most": 4, **AGAIN},
        "0-3 come ranked; 1-3 close; 0 is idle; 12 comes host=another given_node_rank=2;"
        " 13 comes host=node3 given_node_rank=3; wait 2",
        {
            0: "start 0/4, stop lost node1, start 0/3",
            12: "begun 1, start 2/3",
            13: "begun 1, start 1/3",
        },
    ),
    "all that have worked go on, also the first, and a spare waits": (
        {"spares": 1, "max_restarts": 1, "last_call_s": 1},
        "0-2 come; wait 2; 1 fails 1; 0-1 are idle; wait 2",
        {0: "start 0/2, stop failure node1, start 0/2", 2: "begun 1, begun 2"},
    ),
    "launchers of one machine are several nodes": (
        {}, "0-1 come host=node addr=10.0.0.1 boot=a", {0: "start 0/2", 1: "start 1/2"},
    ),
    # Who is waited for
    "others have a moment to come also where it begins again": (
        {"least": 2, "most": 3, "max_restarts": 1},
        "0-2 come; wait 9; 2 closes; 0-1 are idle in vain; wait 0.9 in vain; wait 1",
        {1: "start 1/3, stop lost node2, start 1/2"},
    ),
    "one that comes back before its end is heard is not refused": (
        AGAIN,
        "0-1 come ranked; 2 comes host=node1 given_node_rank=1 addr=10.0.0.1; 1 closes;"
        " 0 is idle; wait 2",
        {2: "begun 1, start 1/2"},
    ),
    "a machine that was started again is no second one": (
        POD,
        "0 comes given_node_rank=0 boot=a; 1 comes host=host given_node_rank=1 boot=b;"
        " 2 comes host=host given_node_rank=1 boot=c addr=10.0.0.1; 0 is idle",
        {2: "begun 1, start 1/2"},
    ),
    "one that may be cut off is heard before all begin, and what is sent to it is there": (
        THREE,
        "0-1 come; sleep 9; 0 beats; sleep 9; 0 beats; sleep 9; 0 beats; 2 comes in vain; sleep 1;"
        " 1 beats in vain; wait 10",
        {1: "start 1/3"},
    ),
    "one that may be cut off before all have met is waited for": (
        THREE, "0-1 come; 1 is lost; wait 300 in vain", {0: ""},
    ),
    "one that has gone before all have met may come again for a moment": (
        THREE, "0-1 come; 1 closes in vain; 1 comes; 1 closes in vain; wait 4", {0: "end 69"},
    ),
    # How epochs end
    "workers that end untold end all": (
        {}, "0-1 come; 1 is idle; 0 is idle", {0: "start 0/2, stop lost node1, end 69"},
    ),
    "all who are done end well though one is lost then": (
        {}, "0-1 come; 1 is done; 1 closes in vain; 0 is done", {0: "start 0/2, end 0"},
    ),
    "a victim is not the cause where a node was lost": (
        {},
        "0-1 come; 0 fails 1 victim; sleep 1; 0 is idle; sleep 9; 1 is lost",
        {0: "start 0/2, stop failure node0, end 69"},
    ),
    "the budget is full again after a window of health": (
        {**ONE, "max_restarts": 1, "window_s": 100},
        "0 comes; wait 1; 0 fails 1; 0 is idle; wait 202; 0 fails 1; 0 is idle; wait 3; 0 fails 1;"
        " 0 is idle",
        {0: "start 0/1" + ", stop failure node0, start 0/1" * 2 + ", stop failure node0, end 1"},
    ),
    # Signals
    "the status of a signal by which all die": (
        ONE,
        "0 comes; 0 is told 15; 0 is idle with -15",
        {0: "start 0/1, stop signal node0, end 143"},
    ),
    "the status of a signal of which some die": (
        {},
        "0-1 come; 1 is told 2; 0 is idle with -2; 1 is idle with 0",
        {0: "start 0/2, stop signal node1, end 130"},
    ),
    "workers that end alike after a signal say the status": (
        {},
        "0-1 come; 1 is told 15; 0-1 are idle with 85",
        {0: "start 0/2, stop signal node1, end 85"},
    ),
    "a second signal waits for nobody, and the first is the cause all the same": (
        {},
        "0-1 come; 1 is told 15; 0 is told 2 again; 1 is told 2 again in vain",
        {0: "start 0/2, stop signal node1, stop signal node1 now"},
    ),
    "a signal for all nodes may come to each at its time": (
        {"least": 1, "most": 3},
        "0-2 come; wait 100; 1 is told 15; 0-2 are idle with 85; sleep 0.2; 2 is told 15;"
        " sleep 0.2; 0 is told 15",
        {conn: f"start {conn}/3, stop signal node1, end 85" for conn in range(3)},
    ),
    "one that leaves before there are enough ends alone": (
        {"least": 3, "most": 4},
        "0-1 come; 1 is told 15; 2-4 come; wait 40",
        {1: "end 143", 0: "start 0/4"},
    ),
    "a hub whose own launcher comes to end ends all that have begun": (
        {"least": 1, "most": 2, "last_call_s": 1},
        "1 comes; wait 2; 0 comes end_signal=15; 1 is idle",
        {1: "start 0/1, stop signal node0, end 143", 0: "begun 1, end 143"},
    ),
    # Launchers that cannot take part
    "one whose place is taken ends nothing": (
        THREE,
        "0-1 come ranked; 2 is unable given_node_rank=1 in vain;"
        " 3 comes host=node2 given_node_rank=2",
        {3: "start 2/3"},
    ),
    "nor one more than have a place": (
        {"spares": 1}, "0-2 come; 3 is unable", {0: "start 0/2", 2: "begun 1", 3: "refused"},
    ),
    "as many as are enough begin at once where the others will not come": (
        {"least": 2, "most": 3, "last_call_s": 1000},
        "0-1 come in vain; 2 is unable",
        {0: "start 0/2"},
    ),
    "one that is started again is waited for": (
        {}, "0 comes; 1 is unable is_restarted=1; 2 comes host=node1", {2: "start 1/2"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "events", "says"), DECISIONS.values(), ids=DECISIONS)
def test_what_the_hub_decides(settings: dict[str, Any], events: str, says: Says) -> None:
    gang = Gang(**settings)
    gang.play(events)
    assert {conn: ", ".join(gang.decided(conn)) for conn in says} == says
