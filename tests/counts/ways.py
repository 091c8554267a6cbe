"""The launches that are counted."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.support.launching import clean_environ
from tests.support.slurm_variables import of_task

# The only task of a step of Slurm on this machine; the number of the job makes the port.
ONE_TASK = of_task(0, 1, "localhost") | {"SLURM_GTIDS": "0"}


class Way(NamedTuple):
    """A way to launch a script."""

    flags: Sequence[str]
    variables: Mapping[str, str]

    def words(self, script: str) -> tuple[str, ...]:
        """What a user types behind `python`."""
        return ("-m", "spawnlaunch", *self.flags, script)

    def environ(self, **more: str) -> dict[str, str]:
        """The environment that it is typed in."""
        return clean_environ(**{**self.variables, **more})


WAYS = {
    "two workers": Way(("--nproc", "2"), {}),
    "one worker": Way(("--nproc", "1"), {}),
    "a task": Way((), ONE_TASK),
}
