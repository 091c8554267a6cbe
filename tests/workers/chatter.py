"""Write many numbered lines to stderr, in pieces: what a torn or lost line would show in.

Usage: chatter.py LINES
"""

import os
import sys

rank = os.environ["RANK"]
for number in range(int(sys.argv[1])):
    line = f"rank {rank} line {number} {'x' * (number % 90)} end\n".encode()
    os.write(2, line[:7])
    os.write(2, line[7:])
