"""A host list means what the installed ``scontrol show hostnames`` says it means."""

import random
import subprocess

import pytest

from spawnlaunch.world.managers.slurm.lists import ListError, expand
from tests.support.required import require_programs
from tests.world.random_lists import random_list

require_programs("scontrol", package="slurm-client")

LISTS_PER_SHELL = 500
SHOW_EACH = 'for l; do scontrol show hostnames "$l"; echo "//"; done'
CONF = "ClusterName=lists\nSlurmctldHost=localhost\nNodeName=n0\nPartitionName=p Nodes=ALL\n"


@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.full)])
def test_generated_lists_expand_as_scontrol_expands_them(scontrol, count):
    generator = random.Random(20220508)
    lists = [random_list(generator) for _ in range(count)]
    differing = [
        (hostlist, truth, expand(hostlist))
        for hostlist, truth in zip(lists, scontrol(lists), strict=True)
        if truth != expand(hostlist)
    ]
    assert differing == []


@pytest.mark.parametrize("hostlist", ["n[1-2],,m", ",n1", "n1,", "a b", "a\tb", "n[1] m[2]"])
def test_loose_separators_mean_what_they_mean_to_scontrol(scontrol, hostlist):
    assert [expand(hostlist)] == scontrol([hostlist])


@pytest.mark.parametrize("hostlist", ["n[3-1]", "n[]", "n[1,,2]", "n[a]", "n[1-2-3]", "n[-1]"])
def test_what_scontrol_refuses_is_refused(scontrol, hostlist):
    assert scontrol([hostlist]) == [[]]
    with pytest.raises(ListError):
        expand(hostlist)


@pytest.fixture(scope="module")
def scontrol(tmp_path_factory):
    """Expands lists with the installed scontrol, which wants a configuration but no daemon."""
    conf = tmp_path_factory.mktemp("scontrol") / "slurm.conf"
    conf.write_text(CONF)

    def show_hostnames(hostlists: list[str]) -> list[list[str]]:
        """One shell for many lists: starting each from Python would cost more than scontrol.

        Errors are not in the exit status, which is 0 (22.05): a refused list expands to nothing.
        """
        expanded = []
        for i in range(0, len(hostlists), LISTS_PER_SHELL):
            shell = subprocess.run(
                ["sh", "-c", SHOW_EACH, "sh", *hostlists[i : i + LISTS_PER_SHELL]],
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "SLURM_CONF": str(conf)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
            expanded += [block.split() for block in shell.stdout.split("//\n")[:-1]]
        return expanded

    return show_hostnames
