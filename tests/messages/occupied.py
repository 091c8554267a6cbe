"""Run a command while every port that a launch may choose is taken, in a network of its own.

unshare --net python -m tests.messages.occupied COMMAND...
"""

import socket
import subprocess
import sys
from pathlib import Path

from spawnlaunch.world.host import EPHEMERAL
from spawnlaunch.world.master import CHOSEN_PORTS

Path(EPHEMERAL).write_text("1024 65535")
taken = [socket.create_server(("", port)) for port in CHOSEN_PORTS]
sys.exit(subprocess.run(sys.argv[1:], check=False).returncode)
