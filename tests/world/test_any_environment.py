"""Whatever stands in the environment: tests/fuzz/environments.py tries all that world reads."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from spawnlaunch.errors import UsageError
from tests.fuzz.environments import NAMES, resolve
from tests.world.recorded import MANAGERS


class Recorded(dict[str, str]):
    """An environment that knows which variables it was asked for."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.asked: set[str] = set()

    def get(self, name, default=None):
        self.asked.add(name)
        return super().get(name, default)

    def __getitem__(self, name):
        self.asked.add(name)
        return super().__getitem__(name)

    def __contains__(self, name):
        self.asked.add(name)
        return super().__contains__(name)


@pytest.mark.parametrize("manager", MANAGERS, ids=lambda manager: manager.name)
def test_no_variable_is_read_that_the_others_do_not_try(manager):
    environ = Recorded(dict.fromkeys(manager.needs, "1"))
    with suppress(UsageError):
        resolve([], environ)
    settings_of_cli = {"PYTHON_EXEC"}
    het = {name for name in environ.asked if re.search(r"_(HET|PACK)_GROUP_\d+$", name)}
    assert environ.asked - {*NAMES, *settings_of_cli, *het} == set()


@pytest.mark.parametrize("where", ["PBS_NODEFILE", "PE_HOSTFILE", "LSB_DJOB_RANKFILE"])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00", b" \t\n# x\n", b"*,[\n"])
def test_any_host_file_is_read_or_refused(where: str, content: bytes, tmp_path: Path):
    file = tmp_path / "hosts"
    file.write_bytes(content)
    environ = {"PBS_JOBID": "1", "JOB_ID": "1", "NSLOTS": "2", "LSB_JOBID": "1"}
    environ |= {where: str(file)}
    with suppress(UsageError):
        resolve(["--nproc=2"], environ)
