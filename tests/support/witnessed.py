"""Whether each Python that starts here reads the line of the wheel that makes workers answer."""

import site
from pathlib import Path

import pytest

LINE = "spawnlaunch-witness.pth"
IS_READ = any(Path(directory, LINE).exists() for directory in site.getsitepackages())
needs_line = pytest.mark.skipif(not IS_READ, reason=f"this Python has no {LINE}: make install")
