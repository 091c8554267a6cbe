"""What a sample cost, and what disturbed it."""

import os
import threading
from pathlib import Path

import pytest

from spawnlaunch.base import errors
from spawnlaunch.bench import bench_page, effort, forked_sample, workloads
from spawnlaunch.bench.effort import Effort, Watch
from spawnlaunch.bench.results import Measured, Recorder, Result, Taken, lines, taken_of
from spawnlaunch.binding.apply import Binding
from tests.bench.results import on
from tests.bench.test_arms import LAPTOP
from tests.bench.test_sample import apart
from tests.machines.tree import node_of
from tests.support.late import Late

torch = Late("torch")
device = Late("spawnlaunch.bench.workloads.device")

QUIET = Effort(0.3, ran_s=0.3, waited_s=0.0, busy_s=0.3, stolen_s=0.0)
SLEPT = {"ran_s": 0.15, "waited_s": 0.15}
WAITED = QUIET._replace(**SLEPT)


def test_this_process_is_watched_while_it_computes():
    mine = frozenset(os.sched_getaffinity(0))
    watch = Watch(mine, mine)
    for _ in range(2):  # the two are added
        watch.start()
        sum(range(300_000))
        watch.stop()
    found = watch.effort
    assert min(found.ran_s or 0, found.took_s) > 0
    assert 0 <= found.waited < 1
    assert found.strayed == ""
    assert effort.read(effort.as_json(found)) is not None


def strayed(moves: bool) -> str:
    """The CPUs to which a thread of a sample was moved, away from its own."""
    first, *_, last = sorted(os.sched_getaffinity(0))
    binding = Binding(0, None, frozenset({first}), frozenset(), 1, "local", "")

    def measure(watch: Watch) -> dict[str, float]:
        leave, is_there = threading.Event(), threading.Event()

        def elsewhere() -> None:
            if moves:
                os.sched_setaffinity(0, {last})
            is_there.set()
            leave.wait()

        other = threading.Thread(target=elsewhere)
        watch.start()
        other.start()
        is_there.wait()
        watch.stop()
        leave.set()
        other.join()
        return {"": 1.0}

    taken = forked_sample.of_workload(binding, measure, lambda: False, frozenset({first, last}))
    assert taken.error == ""
    return taken.effort.strayed


@pytest.mark.full
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a CPU to be moved to")
def test_a_thread_that_a_library_moves_elsewhere_is_seen():
    assert apart(strayed, False) == ""
    assert apart(strayed, True) == str(max(os.sched_getaffinity(0)))


def test_ranks_that_wait_for_each_other_are_no_disturbance_and_others_are():
    alone = WAITED._replace(busy_s=0.3)  # two ranks on one core
    assert effort.disturbed([("a", alone), ("a", alone)]) == ""
    beside = WAITED._replace(busy_s=0.6)
    assert "waited on a for processes" in effort.disturbed([("a", beside), ("a", alone)])
    assert effort.disturbed([("a", QUIET._replace(busy_s=0.6)), ("a", QUIET)]) == ""  # elsewhere
    assert effort.disturbed([("a", beside), ("b", QUIET), ("a", None)]).endswith("of this bench")
    assert "hypervisor" in effort.disturbed([("a", QUIET._replace(stolen_s=0.1))])
    assert "throttled" in effort.disturbed([("a", QUIET._replace(throttled=2))])
    assert effort.disturbed([("a", Effort(1.0))]) == ""  # where nothing is known


def test_ticks_are_those_of_the_allowed_cpus():
    stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 100 5 6 7 8 0 0\ncpu1 10 0 0 0 0 0 0 4 0 0\nintr 5"
    assert effort.cpu_ticks(stat, frozenset({0})) == (19, 8)
    assert effort.cpu_ticks(stat, frozenset({0, 1})) == (29, 12)
    assert effort.cpu_ticks("", frozenset({0})) == (None, None)


def laptop(**costs: Effort) -> Result:
    """Arms of which `exclusive` is half as fast, and what their samples cost."""
    names = ("unpinned", "exclusive", "auto")
    found = on(node_of(LAPTOP), 2, {"compute": {"exclusive": 0.5}}, names)
    measured = found.measured[0]
    taken = [
        each._replace(efforts=(costs[each.arm],) * 2) if each.arm in costs else each
        for each in measured.taken
    ]
    return found._replace(measured=[measured._replace(taken=taken)])


def test_a_thread_out_of_its_binding_and_disturbed_samples_are_named_on_the_page():
    found = laptop(exclusive=QUIET._replace(strayed="9"))
    measured = found.measured[0]
    *others, last = measured.taken
    more = measured._replace(taken=[*others, last._replace(mark="waited")])
    page = "\n".join(bench_page.page(found._replace(measured=[more])))
    assert "exclusive: a library moved a thread to CPUs 9, out of its binding" in page
    assert f"1 sample waited (of {len(measured.taken)})" in page


def test_every_sample_survives_its_file_and_a_torn_line_is_left_out(tmp_path: Path):
    path = str(tmp_path / "a.jsonl")
    cell = Taken("compute", 3, "auto", ({"": 1.5}, {}), (WAITED, None), mark="m", at_s=2.0)
    file = Recorder(path)
    other = cell._replace(error="no")
    for each in (cell, other):
        file.take(each)
    with open(path, "a") as torn:
        torn.write('{"sample": {"wor')
    assert [taken_of(said) for _, said in lines(path)] == [cell, other]


def test_a_file_that_cannot_be_written_is_refused():
    with pytest.raises(errors.UsageError, match="cannot write /dev/full"):
        Recorder("/dev/full").take(Taken("compute", 0, "auto", ()))


def test_a_round_that_was_cut_short_does_not_count():
    measured: Measured = laptop().measured[0]
    assert measured._replace(taken=measured.taken[:-1]).rounds == measured.rounds - 1


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_bench_that_was_interrupted_early_has_a_page(count: int):
    found = laptop()
    found.about["ended_by"] = "SIGTERM"
    measured = found.measured[0]
    few = measured._replace(taken=measured.taken[:count])
    page = "\n".join(bench_page.page(found._replace(measured=[few])))
    assert (f"compute: {count // 3} round" if count else "without a sample: compute") in page
    assert "ended early by SIGTERM" in page
    assert page.startswith("not decided")


@pytest.mark.full
def test_workloads_of_a_device_run_on_the_cpu_as_far_as_they_go():
    from spawnlaunch.bench.workloads.timing import Rank

    watch = Watch(frozenset(), frozenset())
    rank = Rank(0, 1, 0, 1, 1, torch.device("cpu"), 0.01, watch, 1)
    for name in ("launches", "latency"):
        assert workloads.measure_of(name)(rank)[""] > 0
    assert min(device.copied(rank, pinned=False)) > 0
    assert device.copied_both_ways(rank) > 0
    assert workloads.measure_of("loader-pinned")(rank)[""] > 0
    assert workloads.missing("launches", 2, False).startswith("PyTorch sees no CUDA")


@pytest.mark.full
def test_messages_grow_to_a_gibibyte_where_a_device_has_eight_times_that():
    of_cpus = list(device.sizes(None))
    assert (of_cpus[0], of_cpus[-1]) == ("4 B", "4 MiB")
    assert list(device.sizes(80 * 2**30)) == [*of_cpus, "64 MiB", "1 GiB"]
    assert list(device.sizes(4 * 2**30)) == [*of_cpus, "64 MiB"]
    said = workloads.on(workloads.NAMES["allgather"], has_devices=False).about
    assert all(f"{name} " in said for name in device.LARGE)


def test_the_load_is_on_the_page():
    found = laptop()
    found.nodes[0].update(load=9.0)
    page = "\n".join(bench_page.page(found))
    assert "load of node0 before the first sample: 9.0" in page


@pytest.mark.parametrize(("worth", "is_possible"), [(0.9, True), (1.01, True), (20.0, False)])
def test_an_efficiency_above_what_is_possible_is_an_error_that_is_said(
    worth: float, is_possible: bool
):
    found = on(node_of(LAPTOP), 2, {"compute": {"auto": worth}}, ("unpinned", "auto"))
    arms = [arm._replace(name=str(i + 1)) for i, arm in enumerate(found.arms)]
    names = {"unpinned": "1", "auto": "2"}
    taken = [each._replace(arm=names[each.arm]) for each in found.measured[0].taken]
    measured = found.measured[0]._replace(names=("1", "2"), taken=taken)
    found = found._replace(arms=arms, against="1", measured=[measured])
    found.about["counts"] = [1, 2]
    (line,) = bench_page.scaling(measured, found)
    assert line.startswith("  2 workers:") == is_possible
    assert line.startswith("  error: 2 workers") != is_possible
    together = measured._replace(workload=workloads.NAMES["allreduce"])
    assert not list(bench_page.scaling(together, found))
