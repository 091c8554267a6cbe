"""From samples to the table, the advice, the file and the picture."""

import csv
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.bench import compare, effort, export, flags, results, table
from spawnlaunch.bench.advice import advise
from spawnlaunch.bench.workloads import cpu
from spawnlaunch.errors import UsageError
from tests import machines
from tests.bench.results import on, taken, write
from tests.bench.test_arms import LAPTOP
from tests.machines.tree import node_of
from tests.support.launching import run

POLICIES = ("unpinned", "packed", "auto", "node")


def laptop(names: tuple[str, ...] = POLICIES, **ratios: dict[str, float]) -> results.Result:
    return on(node_of(LAPTOP), 2, ratios, names)


def test_the_default_is_kept_with_what_it_is_worth():
    every = {"auto": 1.5, "node": 1.5}
    said = advise(laptop(compute=every, train=every, triad={}))
    assert (said.flags, said.is_sure) == ("", True)
    assert said.text.startswith(
        "leave the flags as they are, --bind auto (the default): compute 1.5"
    )
    assert said.text.endswith("equal to unpinned within 2% in triad")


def test_an_arm_that_beats_the_default_for_sure_is_advised_in_its_place():
    assert advise(laptop(compute={"auto": 0.8, "node": 0.8})).flags == "--bind none"
    said = advise(laptop(compute={"node": 1.2, "unpinned": 1.1}))
    assert said.flags == "--bind node"
    assert said.text.startswith("--bind node: 1.20 (")
    assert said.text.endswith(" times as good in compute as auto")


LITTLE = {"compute": {"node": 1.01}}
SOME = {"train": {"node": 0.99}, "compute": {"node": 1.1}}


@pytest.mark.parametrize(
    ("ratios", "asked", "flags"),
    [
        ({"compute": {"node": 1.04}}, {}, "--bind node"),
        ({"compute": {"node": 1.04}}, {"least": 0.1}, ""),
        (LITTLE, {}, ""),
        (LITTLE, {"least": 0.0}, "--bind node"),
        # Size decides, and not the number of workloads.
        ({"compute": {"node": 1.03}, "loader": {"node": 1.03}, "train": {"node": 0.6}}, {}, ""),
        (
            {"compute": {"node": 0.99}, "loader": {"node": 0.99}, "train": {"node": 1.5}},
            {},
            "--bind node",
        ),
        # What is much worse in any workload is not advised.
        ({"train": {"node": 1.5}, "loader": {"node": 0.9}}, {}, ""),
        ({"train": {"node": 1.5}, "jitter": {"node": 0.9}}, {}, ""),
        (SOME, {"chosen": ["compute"]}, "--bind node"),
        (SOME, {"chosen": ["train"]}, ""),
    ],
)
def test_the_advice_is_for_what_is_asked_for(
    ratios: dict[str, dict[str, float]], asked: dict[str, Any], flags: str
):
    said = advise(laptop(**ratios), **asked)
    assert (said.flags, said.is_sure) == (flags, True)


def test_a_workload_that_the_budget_did_not_reach_is_named_with_what_to_do():
    found = laptop(compute={"node": 1.1}, train={"node": 1.1})
    compute, train = found.measured
    empty = found._replace(measured=[compute, train._replace(taken=[])])
    said = "no advice: train was not measured; a larger --budget may do"
    assert advise(empty, ["train"]).text == said
    assert advise(empty, ["loader"]).text == "no advice: loader was not measured"


def test_a_control_is_never_advised_and_is_named_as_one():
    found = laptop(train={"packed": 2.0})
    assert advise(found)[1:3] == ("", True)
    assert "packed       0 | 0 (never advised)" in "\n".join(table.page(found))


def test_an_arm_that_is_more_than_flags_is_shown_and_never_advised():
    found = laptop(train={"node": 2.0})
    arms = [
        arm._replace(beside="num_workers=4" if arm.name == "node" else "") for arm in found.arms
    ]
    found = found._replace(arms=arms)
    assert advise(found)[1:3] == ("", True)
    assert ", num_workers=4" in "\n".join(table.page(found))


def test_without_the_default_there_is_no_advice():
    said = advise(laptop(("unpinned", "node"), train={"node": 2.0}))
    assert (said.flags, said.is_sure) == ("", False)
    assert "auto, the default, was not measured" in said.text


def test_where_the_default_is_what_there_is_anyway_nothing_is_to_be_typed():
    found = laptop(("unpinned", "packed"), compute={"packed": 0.5})
    same = "it makes no difference here: every rank is bound as under unpinned"
    said = advise(found._replace(left_out={"auto": same}))
    assert said.text == f"leave the flags as they are: auto, the default: {same}"
    assert said.is_sure


def test_a_jitter_that_is_less_is_better():
    assert "jitter 3.0" in advise(laptop(jitter={"auto": 3.0, "node": 3.0})).text


def test_too_few_rounds_are_undecided_and_the_number_that_is_needed_is_said():
    found = laptop(compute={"node": 2.0})
    measured = found.measured[0]
    few = [each for each in measured.taken if each.round < 3]
    found = found._replace(measured=[measured._replace(taken=few)])
    said = advise(found)
    assert (said.flags, said.is_sure) == ("", False)
    assert "node had too few rounds" in said.text
    text = "\n".join(table.page(found))
    assert "undecided: too few to tell" in text
    assert re.search(r"are needed to tell; type --rounds \d+,", text)


@pytest.mark.full
def test_the_flags_alone_can_be_asked_for(tmp_path: Path):
    for name, ratios, words, status in (
        ("node", {"node": 1.5}, "--bind node\n", 0),
        ("auto", {"auto": 1.5}, "", 0),
        ("open", {"node": 1.01}, "", 3),
    ):
        file = tmp_path / name
        write(laptop(("unpinned", "auto", "node"), train=ratios), str(file))
        if name == "open":
            few = file.read_text().replace('"error": 0.0333', '"error": 1e-09')
            file.write_text(few)
        done = run(sys.executable, "-m", "spawnlaunch.bench", "--show", file, "--pick", "train")
        assert (done.stdout, done.returncode) == (words, status), done.stderr
        assert done.stderr.startswith("spawnlaunch.bench: advice: ")


def test_the_table_tells_every_comparison_and_what_was_left_out():
    found = on(node_of(LAPTOP), 2, {"compute": {"auto": 1.5, "packed": 0.5}})
    text = "\n".join(table.page(found))
    assert "far          left out: no rank has" in text
    lines = [line.split() for line in text.splitlines() if line.startswith("  ")]
    against = [words[6] for words in lines if words[0] in ("packed", "auto") and len(words) > 9]
    assert against == ["unpinned", "unpinned"]
    assert any(words[0] == "auto" and words[-1] == "worse" for words in lines)  # packed to auto


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


def test_results_are_compared_arm_by_arm_and_what_not_all_have_is_named():
    old, new = laptop(compute={}, triad={}), laptop(compute={"auto": 1.5}, jitter={})
    new.about["versions"] = {"torch": "2.14.0"}
    lines = list(compare.page([old] * 7, [new] * 7))
    assert lines[0] == "torch: 2.13.0, now 2.14.0"
    auto, unpinned = (next(x for x in lines if x.split()[:1] == [n]) for n in ("auto", "unpinned"))
    assert auto.endswith("better")
    assert unpinned.endswith("equal within 2%")
    assert "jitter is only in the new one" in lines
    lines = list(compare.page([old], [new]))
    assert "one bench a side" in lines[-2]
    assert "type 5 files" in lines[-1]


def test_where_most_samples_waited_an_idle_machine_is_advised():
    found = laptop(compute={})
    (measured,) = found.measured
    few, mark = measured.taken[:12], f"{effort.WAITED_ON} a"
    for count, said in ((6, "larger --budget"), (7, "7 of 12 samples waited")):
        taken = [*(each._replace(mark=mark) for each in few[:count]), *few[count:]]
        assert said in advise(found._replace(measured=[measured._replace(taken=taken)])).text


def test_what_a_command_said_of_its_failure_is_shown_whole():
    found, remedy = laptop(compute={}), "type --out runs/bench-2 " * 20
    taken = [each._replace(error=remedy) for each in found.measured[0].taken]
    page = table.page(found._replace(measured=[found.measured[0]._replace(taken=taken)]))
    assert " ".join("\n".join(page).split()).count(remedy.strip()) == len(POLICIES)


def test_all_caches_of_a_node_count_for_the_size_of_triads_arrays(tmp_path: Path):
    (tmp_path / "size").write_text("32768K\n")
    (tmp_path / "shared_cpu_list").write_text("0-7,96-103\n")
    assert cpu.cache_bytes(tmp_path, 192) == 12 * 32 * 2**20
    assert cpu.cache_bytes(tmp_path / "none", 192) == 0


def test_other_programs_read_each_comparison_from_a_line(tmp_path: Path):
    found, file = laptop(compute={"node": 1.2}, jitter={}), tmp_path / "found.csv"
    export.write(found, flags.parse(["--csv", str(file)], {}))
    with file.open() as text:
        said = list(csv.DictReader(text))
    by_names = {(each["workload"], each["arm"], each["against"]): each for each in said}
    for row in results.rows(found):
        line = by_names[row.workload, row.arm, row.against]
        its = row.comparison
        assert float(line["ratio"]) == its.ratio
        assert (float(line["low"]), float(line["high"])) == (its.low, its.high)
        assert line["verdict"] == its.verdict
    alone = [(each["workload"], each["arm"]) for each in said if not each["against"]]
    assert alone == [("compute", "unpinned"), ("jitter", "unpinned")]
    assert {each["better"] for each in said if each["workload"] == "jitter"} == {"less"}


@pytest.mark.full
def test_a_paper_has_the_cells_of_the_page(tmp_path: Path):
    found, file = laptop(compute={"node": 1.2}), tmp_path / "kept.jsonl"
    write(found, str(file))
    done = run(sys.executable, "-m", "spawnlaunch.bench", "--show", file, "--markdown", "-")
    assert done.returncode == 0, done.stderr
    page = "\n".join(table.page(found))
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(results.rows(found)) + 1
    assert {row.count("|") for row in rows} == {len(table.COLUMNS) + 1}
    for row in rows:
        for cell in filter(None, map(str.strip, row.split("|"))):
            assert cell in page
