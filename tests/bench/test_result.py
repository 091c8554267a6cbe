"""From samples to the table, the advice, the file and the picture."""

import re
from pathlib import Path

import pytest

from spawnlaunch.base.errors import UsageError
from spawnlaunch.bench import bench_page, results
from spawnlaunch.bench.recommendation import advise
from spawnlaunch.bench.workloads import cpu
from tests import machines
from tests.bench.results import on, taken, write
from tests.bench.test_arms import LAPTOP
from tests.machines.tree import node_of

POLICIES = ("unpinned", "control", "auto", "node")


def laptop(names: tuple[str, ...] = POLICIES, **ratios: dict[str, float]) -> results.Result:
    return on(node_of(LAPTOP), 2, ratios, names)


@pytest.mark.parametrize(
    ("ratios", "chosen", "flags", "text"),
    [
        ({"train": {"unpinned": 0.96}}, (), "", "keep the default: unpinned is 4"),
        ({"train": {}}, (), "", "keep the default: unpinned is equal within 3 % in train"),
        ({"train": {"unpinned": 1.25}}, (), "--bind none", "use --bind none: unpinned is 25"),
        ({"train": {"unpinned": 1.25}, "triad": {"unpinned": 0.9}}, (), "", "keep the default"),
        (
            {"train": {}, "triad": {"unpinned": 0.8}},
            (),
            "",
            "keep the default: unpinned is equal "
            "within 3 % in train; unpinned is 25 % slower in triad (",
        ),
        ({"train": {}, "triad": {"unpinned": 1.2}}, ("triad",), "--bind none", "use --bind none"),
        ({"jitter": {"unpinned": 0.5}}, (), "", "keep the default: unpinned is 100"),
    ],
)
def test_the_first_line_is_the_answer(
    ratios: dict[str, dict[str, float]], chosen: tuple[str, ...], flags: str, text: str
):
    found = laptop(("auto", "unpinned"), **ratios)
    said = advise(found, chosen)
    assert (said.flags, said.is_sure) == (flags, True)
    assert said.text.startswith(text)
    assert next(iter(bench_page.page(found, chosen))) == said.text


def test_what_is_not_decided_names_the_rounds_or_the_budget_that_would_decide():
    found = laptop(("auto", "unpinned"), train={})
    measured = found.measured[0]
    few = measured._replace(taken=[each for each in measured.taken if each.round < 10])
    found = found._replace(measured=[few])
    assert advise(found).text.startswith("not decided in 60 rounds: --rounds 40 would decide 3 %")
    found.about["rounds"] = None
    assert " --budget " in advise(found).text
    assert not advise(found).is_sure


def test_of_too_few_rounds_for_an_interval_no_difference_is_shown():
    found = laptop(("auto", "unpinned"), train={"unpinned": 1.2})
    found = found._replace(nodes=[{**node, "load": 99.0} for node in found.nodes])
    found.about["rounds"] = None
    measured = found.measured[0]
    few = measured._replace(taken=[each for each in measured.taken if each.round < 3])
    page = "\n".join(bench_page.page(found._replace(measured=[few])))
    assert re.match(
        r"not decided in \S+ \S+ on a busy machine \(an idle one needs less\): "
        r"3 of 40 rounds of train were done; --budget \d+m would do all\n",
        page,
    )
    assert "no interval yet (too few rounds), not decided" in page
    assert "faster" not in page
    assert "1 workload in 20" not in page
    assert "1 workload in 20" in "\n".join(bench_page.page(found))


def test_arms_that_are_one_leave_nothing_to_compare():
    found = laptop(("auto",), train={})._replace(omitted={"unpinned": "bound as under auto"})
    assert advise(found).text.startswith("nothing to compare: there is one arm (unpinned: bound")
    assert advise(found).is_sure


def test_a_control_is_never_advised_and_is_named_as_one():
    found = laptop(train={"control": 2.0})
    assert advise(found)[1:3] == ("", True)
    assert "control      any CPU for 2 ranks, 2 threads a rank (never advised)" in "\n".join(
        bench_page.page(found)
    )


def test_several_series_are_summed_up_by_their_geometric_mean():
    found = laptop(allreduce={})
    samples = found.measured[0].series[""]
    series = {"4 KiB": samples, "4 MiB": samples}
    measured = found.measured[0]._replace(taken=taken("allreduce", series))
    found = found._replace(measured=[measured])
    assert list(results.summed_up(measured)) == ["4 KiB", "4 MiB", results.MEAN]
    assert {row.series for row in results.headline(results.rows(found))} == {results.MEAN}


def test_the_value_of_a_round_is_that_of_its_slowest_rank():
    samples = {"auto": [[3.0, 1.0, None], [2.0, 5.0, None]]}
    assert results.slowest(samples, True) == {"auto": [1.0, 2.0]}
    assert results.slowest(samples, False) == {"auto": [3.0, 5.0]}


def test_a_result_survives_its_file(tmp_path: Path):
    found = on(node_of(machines.LUMI), 8, {"compute": {"auto": 1.5}, "jitter": {}})
    write(found, str(tmp_path / "one.json"))
    assert results.read(str(tmp_path / "one.json")) == found


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"bench": {"format": 3}}\n', '{"format": 3}\n'])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(UsageError, match="is not what --json of this version writes"):
        results.read(str(tmp_path / "other.json"))


def test_what_a_command_said_of_its_failure_is_shown_whole():
    found, remedy = laptop(compute={}), "type --out runs/bench-2 " * 20
    taken = [each._replace(error=remedy) for each in found.measured[0].taken]
    page = bench_page.page(found._replace(measured=[found.measured[0]._replace(taken=taken)]))
    assert " ".join("\n".join(page).split()).count(remedy.strip()) == len(POLICIES)


def test_all_caches_of_a_node_count_for_the_size_of_triads_arrays(tmp_path: Path):
    (tmp_path / "size").write_text("32768K\n")
    (tmp_path / "shared_cpu_list").write_text("0-7,96-103\n")
    assert cpu.cache_bytes(tmp_path, 192) == 12 * 32 * 2**20
    assert cpu.cache_bytes(tmp_path / "none", 192) == 0
