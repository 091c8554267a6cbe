"""Hub and node alone: what they are told, and what they order, do and print."""

from __future__ import annotations

from typing import Any

import pytest

from spawnlaunch.multinode.hub import ENDED, JOINING, NOTICE_S, RUNNING, STOPPING, TELL_S, Hub
from spawnlaunch.multinode.messages import END, RUN, STOP, WAIT, Failed, Order, Report
from spawnlaunch.multinode.node import LEFT, Node
from spawnlaunch.multinode.settings import Settings
from spawnlaunch.outcome.failures import Cause
from tests.multinode.calls import Calls

AGAIN = {"max_restarts": 3, "can_return": True}


class Launch(Calls):
    """A hub, and its launchers as their Reports; time passes as a test says."""

    def __init__(self, nodes: int = 2, **settings: Any) -> None:
        super().__init__()
        self.now = 1000.0
        flags = "--nnodes=2 --max-restarts=0 --grace=30"
        made = Settings(**{"least": nodes, "most": nodes, "flags": flags, **settings})
        self.hub = Hub(made, self, self.now)
        self.reports: dict[int, Report] = {}

    def come(self, *conns: int, **fields: Any) -> None:
        for conn in conns:
            report = Report(f"node{conn}", f"who{conn}", 1, port=29000 + conn)
            self.reports[conn] = report._replace(**fields)
        self.report(*conns)

    def report(self, *conns: int, **fields: Any) -> None:
        for conn in conns:
            self.reports[conn] = self.reports[conn]._replace(**fields)
            self.hub.hear(conn, self.now)
            self.hub.take(conn, self.reports[conn], f"10.0.0.{conn}", conn == 0, self.now)
        self.reconcile()

    def lose(self, conn: int, is_certain: bool = True) -> None:
        self.hub.lose(conn, is_certain, self.now)
        self.reconcile()

    def reconcile(self, after_s: float = 0.0) -> None:
        self.now += after_s
        for conn in self.hub.peers:
            self.hub.hear(conn, self.now)
        self.hub.reconcile(self.now)

    def orders(self, conn: int) -> list[Order]:
        return [order for number, order in self.calls("say") if number == conn]

    @property
    def lines(self) -> list[str]:
        return [line for name in ("tell", "tell_once") for (line,) in self.calls(name)]


def failed(code: int, age_s: float = 0.0) -> tuple[Failed, ...]:
    return (Failed(Cause("failure", rank=1, code=code, pid=5), age_s, 0.0),)


def test_a_launch_from_its_begin_over_a_restart_to_its_end() -> None:
    launch = Launch(max_restarts=1)
    launch.come(0, 1)
    start = launch.orders(1)[-1]
    assert (start.action, start.epoch, start.first_rank, start.world_size) == (RUN, 1, 1, 2)
    assert (start.master_addr, start.master_port) == ("10.0.0.0", 29000)
    launch.report(0, 1, epoch=1, state="running")
    launch.report(1, state="stopping", failures=failed(7))
    assert [launch.orders(conn)[-1].action for conn in (0, 1)] == [STOP, STOP]
    launch.report(0, 1, state="ready", failures=())
    assert launch.lines == [
        "rank 1 on node1 (pid 5) exited with status 7: restart 1 of 1",
        "start 2: 2 nodes, 2 workers",
    ]
    launch.report(0, 1, epoch=2, state="running")
    launch.report(0, 1, state="finished", ends=((0, 0),))
    assert [launch.orders(conn)[-1].action for conn in (0, 1)] == [END, END]
    assert (launch.hub.phase, launch.hub.status) == (ENDED, 0)


def test_the_same_report_again_changes_nothing() -> None:
    launch = Launch(max_restarts=1)
    steps: list[dict[str, Any]] = [
        {}, {"epoch": 1, "state": "running"}, {"state": "stopping", "failures": failed(7)},
        {"state": "ready"}, {"epoch": 2, "state": "running", "failures": ()}, {"state": "finished"},
    ]  # fmt: skip
    launch.come(0, 1)
    for fields in steps:
        launch.report(0, 1, **fields)
        launch.taken()
        launch.report(0, 1)
        assert launch.taken() == []


def test_of_two_failures_the_earlier_one_counts_though_it_is_heard_later() -> None:
    launch = Launch()
    launch.come(0, 1)
    launch.report(0, 1, epoch=1, state="running")
    launch.report(0, state="stopping", failures=failed(3, age_s=0.2))
    launch.report(1, state="stopping", failures=failed(7, age_s=0.9))
    launch.report(0, 1, state="ready")
    assert launch.hub.status == 7


def test_after_an_uncertain_loss_no_epoch_begins_before_its_workers_are_gone() -> None:
    launch = Launch(3, least=2, grace_s=4.0, failure_grace_s=6.0, max_restarts=1)
    launch.come(0, 1, 2)
    launch.report(0, 1, 2, epoch=1, state="running")
    launch.lose(2, is_certain=False)
    launch.report(0, 1, state="ready")
    assert launch.hub.phase == JOINING
    launch.reconcile(NOTICE_S + 5.9)
    assert launch.hub.phase == JOINING
    launch.reconcile(0.2)
    launch.reconcile(1.1)
    assert launch.hub.phase == RUNNING


def test_a_lost_launcher_is_named_with_its_line_and_replaced_by_any() -> None:
    launch = Launch(join_s=50.0, **AGAIN)
    launch.come(0, rank=0)
    launch.come(1, rank=1)
    launch.report(0, 1, epoch=1, state="running")
    launch.lose(1)
    launch.report(0, state="ready")
    assert launch.lines == [
        "node1 was lost: ending the workers of all nodes",
        "node1 was lost: restart 1 of 3",
        "node1 was lost; start it there again: <1 1>",
        "waiting for node1 at here:29400, up to 50 s",
    ]
    assert launch.orders(0)[-1] == Order(
        WAIT, 1, note="waiting for node1 at here:29400, up to 50 s"
    )
    launch.come(7)
    launch.reconcile(1.0)
    assert launch.orders(7)[-1].node_rank == 1


def test_nobody_comes_back_in_time() -> None:
    launch = Launch(join_s=50.0, **AGAIN)
    launch.come(0, 1)
    launch.report(0, 1, epoch=1, state="running")
    launch.lose(1)
    launch.report(0, state="ready")
    launch.reconcile(51.0)
    assert launch.hub.cause
    words = "still missing: node1; nobody has come back within 50 s"
    assert (launch.hub.status, launch.hub.cause.in_words) == (69, words)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"nproc": 0}, "node1 has 0 workers; type --nproc N"),
        ({"rank": 5}, "node1 has node rank 5, of 2 nodes; type --node-rank N, from 0 to 1"),
        ({"rank": 0}, "node1 and node0 both have node rank 0; type another --node-rank"),
        ({"flags": "--nnodes=3"}, "node1 has --nnodes 3, the hub 2; type the same on all"),
    ],
)
def test_a_launcher_that_does_not_fit_is_refused_with_both_values(
    fields: dict[str, Any], why: str
) -> None:
    launch = Launch()
    launch.come(0, rank=0)
    launch.come(1, **fields)
    (order,) = launch.orders(1)
    assert (order.action, order.status) == (END, 2)
    assert order.cause
    assert order.cause.in_words.startswith(why)


def test_other_flags_are_named_and_the_hubs_count() -> None:
    launch = Launch()
    launch.come(1, flags="--nnodes=2 --max-restarts=0 --grace=5")
    assert launch.lines == ["node1 has --grace 5, the hub 30; the hub's value counts"]


def test_one_that_cannot_take_part_ends_all_but_not_one_whose_place_is_taken() -> None:
    launch = Launch()
    unable = Cause("unable", code=2, words="no GPU")
    launch.come(0, rank=0)
    launch.come(1, rank=1)
    launch.come(2, rank=1, state="unable", cause=unable)
    assert launch.hub.phase == RUNNING
    other = Launch()
    other.come(0, rank=0)
    other.come(1, rank=1, state="unable", cause=unable)
    assert other.hub.cause
    assert other.hub.cause.in_words == "node1 cannot take part: no GPU"
    assert (other.hub.phase, other.hub.status) == (ENDED, 2)


def test_the_missing_are_named_again_and_again() -> None:
    launch = Launch(3, expected=("node0", "node1", "node2"))
    launch.come(0)
    for _ in range(3):
        launch.reconcile(TELL_S + 0.1)
    assert launch.lines == [
        f"waiting for node1, node2 at here:29400, up to {left} s" for left in (590, 580, 570)
    ]


def test_a_second_ctrl_c_takes_the_grace_from_all_nodes() -> None:
    launch = Launch()
    launch.come(0, 1)
    launch.report(0, 1, epoch=1, state="running")
    launch.report(1, state="stopping", leaving=2)
    assert launch.orders(0)[-1].grace_s == 30.0
    launch.report(1, is_hurried=True)
    assert launch.hub.phase == STOPPING
    assert launch.orders(0)[-1].grace_s == 0.0


# A node


class One(Calls):
    """A node, which has a hub."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node(Report("node1", "who", 1), 600.0, 1.0, 60.0, self, self, 0.0)
        self.node.linked(0.0)
        self.hears(Order(WAIT))

    def hears(self, order: Order, now: float = 1.0) -> list[str]:
        self.node.heard(order, now)
        return self.looks(now)

    def looks(self, now: float) -> list[str]:
        self.node.reconcile(now)
        return [name for name, *_ in self.taken() if name != "say"]


def test_only_the_last_order_counts() -> None:
    one = One()
    one.node.heard(Order(RUN, 1), 1.0)
    assert one.hears(Order(STOP, 1)) == []  # it has not started, and says that it is ready
    assert (one.node.report.epoch, one.node.report.state) == (1, "ready")
    assert one.hears(Order(RUN, 2)) == ["launch"]
    assert one.hears(Order(RUN, 2)) == []
    assert one.hears(Order(STOP, 2, grace_s=3.0)) == ["halt"]
    assert one.hears(Order(STOP, 2, grace_s=3.0)) == []
    assert one.hears(Order(STOP, 2)) == ["halt"]  # without any grace


def test_a_start_and_the_end_of_the_connection_start_nothing() -> None:
    one = One()
    one.node.heard(Order(RUN, 1), 1.0)
    one.node.unlinked(1.0, "closed")
    assert "launch" not in one.looks(1.0)


def test_an_end_counts_after_the_connection_has_ended() -> None:
    one = One()
    one.node.heard(Order(END, cause=Cause("failure", "a", 0, 7), status=7), 1.0)
    one.node.unlinked(1.0, "closed")
    assert one.looks(1.0)[-1] == "exit"
    assert one.node.stage == LEFT


def test_a_lost_hub_ends_the_workers_and_then_the_launcher() -> None:
    one = One()
    one.hears(Order(RUN, 1, grace_s=5.0))
    one.node.unlinked(2.0, "closed")
    assert one.looks(2.0) == ["tell", "halt"]
    one.node.ended(False, 7)
    one.node.reconcile(3.0)
    assert one.calls("exit") == [[69, Cause("lost", words="the hub")]]
