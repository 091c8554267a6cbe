"""Run a command while every port that a launch may choose is taken, in a network of its own.

unshare --net python -m tests.messages.occupied COMMAND...
"""

import resource
import socket
import subprocess
import sys

from spawnlaunch.world.master import FREE_PORTS

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, len(FREE_PORTS) + 100), most))
taken = [socket.create_server(("", port)) for port in FREE_PORTS]
sys.exit(subprocess.run(sys.argv[1:], check=False).returncode)
