"""The roll call of workers that have torch's door open: who cannot answer is told of otherwise."""

import re
import signal
from pathlib import Path

import pytest

from tests.support.processes import until
from tests.support.watching import launched
from tests.support.witnessed import needs_line

pytestmark = needs_line

HOLDS = {
    "sleeps in C": "ctypes.PyDLL(None).sleep(3600)\n",
    "is stopped": "os.kill(os.getpid(), signal.SIGSTOP)\n",
}


@pytest.mark.parametrize("how", HOLDS)
def test_who_keeps_the_others_from_answering_is_told_of(how: str, tmp_path: Path):
    (tmp_path / "torch.py").touch()
    script = tmp_path / "script.py"
    script.write_text(
        "import ctypes, os, signal, time, torch\nos.write(1, b'ready\\n')\n"
        f"if os.environ['RANK'] == '0':\n    time.sleep(3600)\n{HOLDS[how]}"
    )
    with launched("--nproc", 2, "--stack-on-usr2", script, directory=tmp_path) as one:
        one.read_until(2)
        one.send(signal.SIGUSR2)
        until(lambda: "the whole stacks are in" in one.stderr, "the roll is called")
        place = Path(re.findall(r"the whole stacks are in (\S+)", one.stderr)[0])
        answered, held = ((place / f"rank-{rank}.log").read_text() for rank in (0, 1))
        assert ", by itself:" in answered
        assert '"MainThread"' in answered  # by the thread
        assert len(re.findall(r"rank \d .*\(script.py:\d\)", one.stderr)) == 2
        if how == "sleeps in C":
            assert ", by itself:" in held
            assert "(most recent call first)" in held  # by the signal
        else:
            assert ", by itself:" not in held
        one.send(signal.SIGKILL)
