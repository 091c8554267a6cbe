"""--local-rank-arg: scripts of torch.distributed.launch find their local rank in argv."""

import pytest

from tests.support.launching import REPORTER, explain, launch, reports

MODULE = ("-m", "tests.workers.report", "a")


@pytest.mark.parametrize(
    ("flags", "script", "words"),
    [
        (["--local-rank-arg", "hyphen"], (REPORTER, "a"), ["--local-rank=0", "--local-rank=1"]),
        (
            ["--local-rank-arg", "underscore", "--preload", "json"],
            (REPORTER, "a"),
            ["--local_rank=0", "--local_rank=1"],
        ),
        (
            ["--local-rank-arg", "underscore", "--virtual-local-rank"],
            (REPORTER, "a"),
            ["--local_rank=0"] * 2,
        ),
        (["--local-rank-arg", "hyphen"], MODULE, ["--local-rank=0", "--local-rank=1"]),
        (["--local-rank-arg", "none"], (REPORTER, "a"), None),
        ([], (REPORTER, "a"), None),
    ],
)
def test_the_local_rank_comes_before_the_scripts_arguments(flags, script, words):
    done = launch("--nproc", 2, *flags, *script)
    assert done.returncode == 0, done.stderr
    argv = [worker["argv"][1:] for worker in reports(done.stdout)]
    assert argv == ([[word, "a"] for word in words] if words else [["a"]] * 2)


def test_so_does_a_program(tmp_path):
    show = tmp_path / "show"
    show.write_text('#!/bin/sh\necho "$@"\n')
    show.chmod(0o755)
    done = launch("--nproc", 2, "--no-prefix", "--local-rank-arg=hyphen", "--no-python", show, "a")
    assert sorted(done.stdout.splitlines()) == ["--local-rank=0 a", "--local-rank=1 a"]


@pytest.mark.parametrize(
    ("listed", "shown"), [("3", "333"), ("4,5,", "454"), (None, "012"), ("", ["", "", ""])]
)
def test_ranks_that_share_devices_go_around_as_their_cpus_do(listed, shown):
    words = ("--nproc", 3, "--oversubscribe", "--virtual-local-rank")
    environ = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    workers = [environ | one["env"] for one in explain(*words, **environ)["workers"]]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in workers] == [*shown]
    assert {one["LOCAL_RANK"] for one in workers} == {"0"}
