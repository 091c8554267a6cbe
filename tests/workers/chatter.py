"""Write many numbered lines, in pieces: what a torn or lost line would show in.

Usage: chatter.py LINES [DESCRIPTOR, 2 by default, or both]
"""

import os
import sys

rank = os.environ["RANK"]
where = sys.argv[2] if len(sys.argv) > 2 else "2"
fds = (1, 2) if where == "both" else (int(where),)
for number in range(int(sys.argv[1])):
    line = f"rank {rank} line {number} {'x' * (number % 90)} end\n".encode()
    for fd in fds:
        os.write(fd, line[:7])
        os.write(fd, line[7:])
