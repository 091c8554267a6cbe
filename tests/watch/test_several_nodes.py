"""--record where several launchers are one launch: a file of each node, one page of them all."""

import json
import re
from pathlib import Path
from subprocess import DEVNULL

import pytest

from spawnlaunch.hang import asked
from spawnlaunch.watch import recorder, story
from tests.hang import training
from tests.support.launching import LAUNCHER, start
from tests.support.matrix import mostly_full
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.watch.conftest import Recorded

SAYS = "import os; print(os.environ['RANK'], os.environ['MASTER_PORT'], flush=True)"


@pytest.mark.parametrize("ranks_are_given", mostly_full([False, True]))
def test_all_nodes_are_on_one_page_with_their_ranks(tmp_path: Path, ranks_are_given: bool) -> None:
    """Where none are given, no launcher knows its ranks before it has met the other."""
    (tmp_path / "says.py").write_text(SAYS)
    said = two_nodes(tmp_path, free_port(), ranks_are_given)
    record = Recorded(tmp_path / "record")
    assert len([*record.directory.iterdir()]) == 2
    page = record.page
    assert page.count("<pre>") == 1  # launch, with its command
    assert "<h1>4 ranks on " in page
    assert "<td>RANK</td><td>0, 1, 2, 3</td>" in page
    assert f"<td>MASTER_PORT</td><td>{said[0][1]}</td>" in page
    assert sorted(rank for rank, _ in said) == ["0", "1", "2", "3"]
    assert sorted(line["rank"] for line in record.of_kind("ended")) == [0, 1, 2, 3]


def test_a_node_that_is_slow_as_a_whole_is_noted_on_the_page(tmp_path: Path) -> None:
    """Its own recorder sees only ranks that are equally slow."""
    (tmp_path / "says.py").write_text(SAYS)
    two_nodes(tmp_path, free_port(), True)
    record = Recorded(tmp_path / "record")
    for file in record.directory.iterdir():
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        (ranks,) = (sorted(map(int, line["pids"])) for line in lines if line["kind"] == "attempt")
        steps = {"compute_s": [0.3 if 2 in ranks else 0.1] * 2, "data_s": [0.01] * 2}
        sample = {"kind": "sample", "time": lines[-1]["time"], "ranks": ranks, **steps}
        with file.open("a") as more:
            more.write(json.dumps(sample) + "\n")
    assert "rank 2 needs 310 ms for a step, 1.5 times the median of all nodes" in record.page
    assert "rank 3 needs 310 ms" in record.page
    assert "rank 0 needs" not in record.page


def test_the_page_names_the_rank_that_those_of_all_nodes_wait_for(tmp_path: Path) -> None:
    """The recorder of its node sees that its own ranks are equally late."""
    (tmp_path / "says.py").write_text(SAYS)
    two_nodes(tmp_path, free_port(), True)
    record = Recorded(tmp_path / "record")
    answers = training.answers(training.Training(4, 100, late={2: 0.5, 3: 0.5}))
    for file in sorted(record.directory.glob("*.jsonl")):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        (ranks,) = (sorted(map(int, line["pids"])) for line in lines if line["kind"] == "attempt")
        own = {rank: asked.as_json(answers[rank], recorder.MOST_CALLS) for rank in ranks}
        answers_file = Path(recorder.answers_file(str(file)))
        answers_file.write_text(json.dumps({178: {}, 179: own, 180: own}))
    for rank in (2, 3):
        assert re.search(
            rf"<b>waited for</b> after [^<]*: the others wait for rank {rank}, \d+ ms of each "
            r"\d+ ms, before train.py:88 \(all_reduce\); it is at train.py:31 "
            r"\(of the ranks of all nodes; clocks within 10 ms\)</p>",
            record.page,
        )
    answers_file.write_text('{"179": {"2": {}}}')
    assert "waited for" not in record.page.replace("that others wait", "")


@pytest.mark.full
def test_a_job_that_is_started_again_is_another_launch(tmp_path: Path) -> None:
    """As by Slurm: under the same name, at the same port."""
    (tmp_path / "says.py").write_text(SAYS)
    port = free_port()
    for _ in range(2):
        two_nodes(tmp_path, port, True)
    launches = story.read(str(tmp_path / "record")).launches
    assert [len(launch.starts) for launch in launches] == [2, 2]
    assert launches[0].began > launches[1].ended
    for launch in launches:
        assert sorted(one["rank"] for one in launch.of_kind("ended")) == [0, 1, 2, 3]


def two_nodes(directory: Path, port: int, ranks_are_given: bool) -> list[list[str]]:
    """Launch says.py on two nodes; what its workers have said, as words."""
    launchers = []
    for number in range(2):
        where = (
            ("--node-rank", number, "--master-addr", "127.0.0.1", "--master-port", port)
            if ranks_are_given
            else ("--rdzv-endpoint", f"127.0.0.1:{port}")
        )
        flags = ("--quiet", "--nnodes", 2, *where, "--nproc", 2, "--record", directory / "record")
        launchers.append(start(*LAUNCHER, *flags, directory / "says.py", stderr=DEVNULL))
    said = "".join(one.communicate(None, PATIENCE_S)[0] for one in launchers)
    assert [one.returncode for one in launchers] == [0, 0]
    return [line.split() for line in said.splitlines()]
