"""What the command line of the bench takes and refuses."""

import pytest

from spawnlaunch.base.errors import UsageError
from spawnlaunch.bench.bench_request import parse


def test_a_command_takes_the_place_of_the_workloads():
    options = parse(["--rounds", "9", "--", "sh", "-c", "exit 0", "--", "--rounds"], {})
    assert options.command == ("sh", "-c", "exit 0", "--", "--rounds")
    assert (options.rounds, options.workloads) == (9, ())


def test_the_default_or_else_the_first_arm_is_what_the_others_are_compared_with():
    assert parse(["--arms", "far,auto"], {}).against == "auto"
    assert parse(["--arms", "unpinned,far"], {}).against == "unpinned"
    assert [arm.name for arm in parse([], {}).arms] == ["auto", "unpinned"]
    assert parse(["--arms", "auto,far", "--against", "far"], {}).against == "far"


def test_omp_num_threads_of_the_user_holds_in_all_arms_and_the_launchers_does_not():
    assert parse([], {"OMP_NUM_THREADS": "3"}).omp_threads == 3
    assert parse([], {"OMP_NUM_THREADS": "3", "RANK": "0"}).omp_threads is None
    assert parse(["--omp-threads", "2"], {"OMP_NUM_THREADS": "3"}).omp_threads == 2


def test_a_time_has_a_unit_or_is_in_seconds():
    times = {text: parse(["--budget", text], {}).budget_s for text in ("90", "90s", "5m", "0.5h")}
    assert times == {"90": 90, "90s": 90, "5m": 300, "0.5h": 1800}
    assert parse([], {}).budget_s == 300


def test_flags_alone_are_picked_for_all_workloads_or_some():
    assert (parse(["--pick"], {}).pick, parse(["--pick"], {}).chosen) == (True, ())
    options = parse(["--pick", "train,loader"], {})
    assert (options.pick, options.chosen) == (True, ("train", "loader"))
    assert parse(["--workloads", "triad,train"], {}).workloads == ("train", "triad")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--arms best", "unknown arm 'best'; use unpinned, control, far, auto"),
        ("--against far --arms auto", "--against far is not among the arms auto"),
        ("--metric loss", "--metric needs a command of yours; put it after a --"),
        ("--lower-is-better -- sh", "--lower-is-better needs a --metric; lower wall time is"),
        ("--workloads triad -- sh", "--workloads names bundled work and -- begins a command"),
        ("--arm a=OMP_NUM_THREADS=2", "--arm a: OMP_NUM_THREADS is read when"),
        ("-- no-such-program", "program 'no-such-program' after the -- is not found"),
        ("--show nowhere.json", "there is no file 'nowhere.json'"),
        ("--rounds 0", "--rounds: '0' is not a number above 0"),
        ("--warm 1", "unrecognized arguments: --warm 1; a command of yours goes after a --"),
        ("--budget soon", "--budget: 'soon' is not a time; use one as 90s, 5m or 1h"),
        ("--pick train -- sh", "--pick chooses among bundled workloads"),
        ("--pick train --workloads triad", "train is advised for but not measured"),
        ("--launcher torchrun", "--launcher starts a command of yours; put it after a --"),
        ("--launcher torchrun -- sh", "starts a number of workers; add --nproc 2"),
        ("--nproc 2 --launcher torchrun --arms auto -- sh", "--launcher compares launchers"),
        ("--launcher mpirun", "unknown launcher 'mpirun'; use torchrun, spawnlaunch"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: str, said: str):
    with pytest.raises(UsageError) as refused:
        parse(words.split(), {})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
