"""Fixtures that tests of several packages share."""

import gc
import os
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm, require_slurm, start
from tests.support import matrix
from tests.support.launching import heed_signals
from tests.support.required import DEVELOPMENT

with suppress(ModuleNotFoundError):
    import hypothesis

    # The same cases each time, on all machines. How long one takes says how busy a machine is.
    hypothesis.settings.register_profile(
        "timeless", deadline=None, derandomize=True, database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    hypothesis.settings.load_profile("timeless")

# What is compiled is kept: the tests start Python some thousand times, and each reads the launcher.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

heed_signals()
if "PYTEST_XDIST_WORKER" in os.environ:
    # A process group of its own for each of several side by side. A worker alone is in its
    # launcher's group, which is this one: when it ends, and nobody outside of the group controls
    # it, and a test beside it has stopped a process of the group, the kernel sends SIGHUP to all
    # (setpgid(2), "orphaned").
    os.setpgid(0, 0)

# The files that take longest: what begins last ends last.
FIRST = [
    "machine/test_machine", "torchrun/test_lines", "bench/test_run", "torchrun/test_programs",
    "slurm/test_jobs", "slurm/test_lines", "run/test_refused_calls", "hang/test_hang",
    "train/test_train_exact", "check/test_check", "bench/test_ending", "train/test_train_streams",
    "train/test_train_resume", "train/test_train_hf", "watch/test_top", "world/test_mpi",
    "slurm/test_scripts", "run/test_terminal", "machine/test_seldom", "machine/test_seeds",
    "multinode/test_launches", "hang/test_culprits", "messages/test_messages",
]  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    matrix.are_collected = "not full" not in config.getoption("markexpr")
    gc.disable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A file that imports a package which is not installed is skipped, but fails in CI."""
    report = yield
    missing = _missing_package(report)
    if missing and "CI" not in os.environ:
        report.outcome = "skipped"
        report.longrepr = (report.nodeid, 0, f"Skipped: needs {missing} ({DEVELOPMENT})")
    return report


def _missing_package(report: pytest.CollectReport) -> str:
    """The package of somebody else's that could not be imported; "" where there is none."""
    error = report.call.excinfo if report.failed else None  # --lf passes files without a call
    cause = error.value.__cause__ if error else None
    name = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
    return "" if name in ("spawnlaunch", "train", "tests") else name


def pytest_collection_finish() -> None:
    """What all files have imported stays: nobody has to look through it while tests run."""
    gc.enable()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {Path(__file__).parent / f"{name}.py": number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """/sys and /proc of the machines of tests/machines: directories, by name."""
    from tests.machines import NAMED
    from tests.machines.tree import Trees

    return Trees(tmp_path_factory.mktemp("trees"), NAMED)


@pytest.fixture(scope="session")
def slurm_session() -> Iterator[Slurm]:
    """The session's cluster; tests take ``slurm``, which hands it on clean."""
    require_slurm()
    cluster = start()
    yield cluster
    cluster.stop()


@pytest.fixture
def slurm(slurm_session: Slurm) -> Iterator[Slurm]:
    """A running Slurm of four nodes: node0 to node3, 8 CPUs and 8 stand-in GPUs each."""
    yield slurm_session
    slurm_session.cancel_all()


@pytest.fixture
def small_cpuset() -> Iterator[Path]:
    """A cpuset of version 1 that holds the second of this machine's CPUs: write pids to `tasks`."""
    mount = Path("/sys/fs/cgroup/cpuset")
    directory = mount / f"spawnlaunch-test-{os.getpid()}"
    try:
        directory.mkdir()
    except OSError:
        pytest.skip("cannot make a cpuset here")
    try:
        (directory / "cpuset.mems").write_text((mount / "cpuset.mems").read_text())
        (directory / "cpuset.cpus").write_text(str(sorted(os.sched_getaffinity(0))[1]))
        yield directory
    finally:
        directory.rmdir()
