"""More threads than CPUs, asked for by a variable, are kept and named in one line."""

import pytest

from tests.machines.small import TWO_NODES, small
from tests.machines.tree import Gpu, Machine, cores
from tests.support.explained import explain
from tests.support.slurm_variables import of_task

MACHINE = small(4, TWO_NODES, (Gpu(0, "0-1"), Gpu(1, "2-3")))
UNEVEN = small(5, {0: "0-4"})
SMT = Machine("smt", "invented", cores(2, 2), {0: "0-3"})


@pytest.mark.parametrize(
    ("machine", "arguments", "environ", "said"),
    [
        (MACHINE, "--nproc gpu", {"OMP_NUM_THREADS": "3"},
         "OMP_NUM_THREADS=3: more threads than the 2 CPUs of local ranks 0-1"),
        (MACHINE, "--nproc gpu", {"OMP_NUM_THREADS": " 112,2 "}, "OMP_NUM_THREADS=112,2: more"),
        (MACHINE, "--nproc gpu", {"MKL_NUM_THREADS": "3"}, "unset MKL_NUM_THREADS, and"),
        (MACHINE, "--nproc gpu", {"MKL_NUM_THREADS": "4", "OMP_NUM_THREADS": "3"},
         "MKL_NUM_THREADS=4 and OMP_NUM_THREADS=3: more"),
        (MACHINE, "--nproc gpu", {"MKL_NUM_THREADS": "4", "OMP_NUM_THREADS": "2"},
         "MKL_NUM_THREADS=4: more"),
        (MACHINE, "--nproc 4 --oversubscribe", {"OMP_NUM_THREADS": "2"},
         "than the 1 CPU of local ranks 0-3"),
        (MACHINE, "--nproc 1 --bind none", {"OMP_NUM_THREADS": "5"}, "the 4 CPUs of local rank 0"),
        (UNEVEN, "--nproc 2", {"OMP_NUM_THREADS": "3"}, "than the 2 CPUs of local rank 1"),
        (UNEVEN, "--nproc 2", {"OMP_NUM_THREADS": "9"}, "than the 2 to 3 CPUs of local ranks 0-1"),
        (SMT, "--nproc 2 --smt off", {"OMP_NUM_THREADS": "2"}, "the 1 CPU of local ranks 0-1"),
        # What fits, or says nothing.
        (SMT, "--nproc 2", {"OMP_NUM_THREADS": "2"}, ""),
        (MACHINE, "--nproc gpu", {"OMP_NUM_THREADS": "2,9"}, ""),
        (MACHINE, "--nproc gpu", {"OMP_NUM_THREADS": "1, 1", "MKL_NUM_THREADS": "none"}, ""),
        (MACHINE, "--nproc 4 --bind none --oversubscribe", {"OMP_NUM_THREADS": "4"}, ""),
        (MACHINE, "--nproc gpu", {}, ""),
    ],
)  # fmt: skip
def test_threads_beyond_a_ranks_cpus_are_one_line(
    machine: Machine, arguments: str, environ: dict[str, str], said: str
) -> None:
    told = explain(machine, arguments, environ)
    lines = [line for line in told["warnings"] if "threads than" in line]
    assert [said in line for line in lines] == [True] * bool(said)
    for name, value in environ.items():  # inherited as they are
        assert all(worker["env"].get(name, value) == value for worker in told["workers"])


@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_number_of_threads_is_as_not_set(empty: str) -> None:
    told = explain(MACHINE, "--nproc gpu", {"OMP_NUM_THREADS": empty})
    assert [worker["env"]["OMP_NUM_THREADS"] for worker in told["workers"]] == ["2", "2"]


@pytest.mark.parametrize("value", ["0", "-1", "many", "4x", "2,", "0,2", "1.5", "two,2"])
@pytest.mark.parametrize("task", [False, True])
def test_what_openmp_does_not_take_counts_as_not_set_with_a_line(value: str, task: bool) -> None:
    environ = {**(of_task(0, 2) if task else {}), "OMP_NUM_THREADS": value}
    told = explain(MACHINE, "" if task else "--nproc gpu", environ)
    assert {worker["env"]["OMP_NUM_THREADS"] for worker in told["workers"]} == {"2"}
    (line,) = [line for line in told["warnings"] if "OMP_NUM_THREADS" in line]
    assert line.startswith(f"OMP_NUM_THREADS={value} is not a number of threads")
    assert line.endswith("; unset OMP_NUM_THREADS")
