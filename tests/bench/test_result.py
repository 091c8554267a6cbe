"""From samples to the table, the advice, the file and the picture."""

import json
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread

from spawnlaunch.bench import compare, result, table
from spawnlaunch.bench.advice import advice
from spawnlaunch.bench.plot import draw
from spawnlaunch.bench.workloads import cpu
from spawnlaunch.errors import UsageError
from tests.bench.results import on
from tests.bench.test_arms import LAPTOP
from tests.node import machines
from tests.node.tree import node_of
from tests.support.launching import run


def laptop(**ratios: dict[str, float]) -> result.Result:
    return on(node_of(LAPTOP), 2, ratios)


def test_the_default_is_advised_with_what_it_is_worth():
    found = laptop(compute={"auto": 1.5, "packed": 0.5}, triad={})
    assert advice(found).startswith("--bind auto (the default): compute 1.5")
    assert advice(found).endswith("no measurable difference to unpinned in triad")


def test_where_nothing_differs_the_flags_stay_as_they_are():
    said = advice(laptop(compute={}))
    assert said.startswith("leave the flags as they are, --bind auto (the default): no measurable")


def test_an_arm_that_beats_the_default_is_advised_in_its_place():
    assert advice(laptop(compute={"auto": 0.8})).startswith("--bind none: compute 1.2")
    assert advice(laptop(compute={"packed": 2.0})).startswith("--bind 0:0 (packed): compute 2.0")


def test_where_the_default_is_what_there_is_anyway_nothing_is_to_be_typed():
    found = laptop(compute={"packed": 0.5})
    same = "it makes no difference here: every rank is bound as under unpinned"
    kept = [arm for arm in found.arms if arm.name != "auto"]
    said = advice(found._replace(arms=kept, left_out={"auto": same}))
    assert said == f"leave the flags as they are: auto, the default: {same}"


def test_more_workloads_decide_and_not_the_largest_number():
    found = laptop(compute={"packed": 1.2}, triad={"packed": 0.5}, loader={"packed": 0.9})
    assert "--bind auto" in advice(found)


def test_a_jitter_that_is_less_is_better():
    assert "jitter 3.0" in advice(laptop(jitter={"auto": 3.0}))


def test_too_few_rounds_give_no_advice():
    found = laptop(compute={"auto": 2.0})
    few = {name: rounds[:3] for name, rounds in found.measured[0].series[""].items()}
    found.measured[0].series[""].update(few)
    assert advice(found) == "no advice: too few rounds to tell; type more --rounds"


def test_the_table_tells_every_comparison_and_what_was_left_out():
    text = "\n".join(table.page(laptop(compute={"auto": 1.5, "packed": 0.5})))
    assert "far          left out: no rank has a device here" in text
    lines = [line.split() for line in text.splitlines() if line.startswith("  ")]
    against = [words[5] for words in lines if words[0] in ("packed", "auto") and len(words) > 9]
    assert against == ["unpinned", "unpinned"]
    assert any(words[0] == "auto" and words[-1] == "worse" for words in lines)  # packed to auto


def test_several_series_are_summed_up_by_their_geometric_mean():
    found = laptop(allreduce={})
    samples = found.measured[0].series[""]
    series = {"4 KiB": samples, "4 MiB": samples}
    measured = found.measured[0]._replace(series=series)
    found = found._replace(measured=[measured])
    assert list(result.summed_up(measured)) == ["4 KiB", "4 MiB", result.MEAN]
    assert {row.series for row in result.headline(result.rows(found))} == {result.MEAN}


def test_the_value_of_a_round_is_that_of_its_slowest_rank():
    samples = {"auto": [[3.0, 1.0, None], [2.0, 5.0, None]]}
    assert result.slowest(samples, True) == {"auto": [1.0, 2.0]}
    assert result.slowest(samples, False) == {"auto": [3.0, 5.0]}


def test_a_result_survives_its_file(tmp_path: Path):
    found = on(node_of(machines.LUMI), 8, {"compute": {"auto": 1.5}, "jitter": {}})
    result.write(found, str(tmp_path / "one.json"))
    assert result.read(str(tmp_path / "one.json")) == found
    said = json.loads((tmp_path / "one.json").read_text())
    assert len(said["comparisons"]) == len(result.rows(found))


@pytest.mark.parametrize("text", ["", "[]", '{"format": 0}', '{"format": 2}'])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(UsageError, match="is not what --json of this version writes"):
        result.read(str(tmp_path / "other.json"))


def test_two_results_are_compared_arm_by_arm_and_other_differences_named():
    old, new = laptop(compute={}), laptop(compute={"auto": 1.5})
    new.about["versions"] = {"torch": "2.14.0"}
    lines = list(compare.page(old, new))
    assert lines[0] == "torch: 2.13.0, now 2.14.0"
    auto, unpinned = (next(x for x in lines if x.split()[:1] == [n]) for n in ("auto", "unpinned"))
    assert auto.endswith("better")
    assert unpinned.endswith("no measurable difference")


def test_what_only_one_of_two_results_has_is_named():
    lines = list(compare.page(laptop(compute={}, triad={}), laptop(compute={}, jitter={})))
    assert "jitter is only in the new one" in lines
    assert "triad is only in the old one" in lines


@pytest.mark.parametrize("name", ["two.png", "two.svg"])
def test_the_picture_of_two_ranks(tmp_path: Path, name: str):
    draw(laptop(compute={"auto": 1.5}, jitter={}, triad={}), str(tmp_path / name))
    assert (tmp_path / name).stat().st_size > 10_000


def test_the_picture_of_eight_devices_has_no_colour(tmp_path: Path):
    found = on(node_of(machines.LUMI), 8, {"compute": {"far": 0.9, "packed": 0.4}, "triad": {}})
    draw(found, str(tmp_path / "eight.png"))
    red, green, blue = imread(tmp_path / "eight.png")[..., :3].transpose(2, 0, 1)
    assert (red == green).all()
    assert (green == blue).all()
    assert (red < 0.5).any()


def test_a_picture_is_refused_before_anything_is_measured_where_there_is_no_matplotlib():
    block = "import sys; sys.modules['matplotlib'] = None; "
    code = f"{block}sys.argv[1:] = ['--plot', 'a.png']; import spawnlaunch.bench.__main__ as b; "
    done = run(sys.executable, "-c", f"{code}sys.exit(b.main())")
    assert done.returncode == 2
    assert "pip install 'spawnlaunch[plots]'" in done.stderr


def test_two_commands_or_two_metrics_are_not_compared():
    old, new = laptop(compute={}), laptop(compute={})
    other = new.measured[0].workload._replace(unit="tokens_per_s")
    lines = list(
        compare.page(old, new._replace(measured=[new.measured[0]._replace(workload=other)]))
    )
    about = other.about
    assert lines == [f"compute is not the same: {about} in GFLOP/s, now {about} in tokens_per_s"]


def test_all_caches_of_a_node_count_for_the_size_of_triads_arrays(tmp_path: Path):
    (tmp_path / "size").write_text("32768K\n")
    (tmp_path / "shared_cpu_list").write_text("0-7,96-103\n")
    assert cpu.cache_bytes(tmp_path, 192) == 12 * 32 * 2**20
    assert cpu.cache_bytes(tmp_path / "none", 192) == 0
