"""Rank RANK fails as HOW says; the other ranks sleep, with a child of their own each.

Usage: fail.py RANK raise|exit|signal [status or signal number]
"""

import os
import signal
import subprocess
import sys
import time

rank, how = int(sys.argv[1]), sys.argv[2]
if int(os.environ["RANK"]) == rank:
    time.sleep(0.3)  # so that the others have started their child
    if how == "raise":
        raise RuntimeError("the worker's own message")
    if how == "exit":
        os._exit(int(sys.argv[3]))
    signal.raise_signal(int(sys.argv[3]))
else:
    subprocess.Popen(["sleep", "600"])
    time.sleep(600)
