"""A worker of `output`: write numbered lines of 83 bytes as fast as they are taken."""

import os
import sys

CHARS = 82
BLOCK = 64  # lines in one write

rank, count = os.environ["RANK"], int(sys.argv[1])
for first in range(0, count, BLOCK):
    lines = (f"worker {rank} line {i} " for i in range(first, min(first + BLOCK, count)))
    data = "".join(f"{line:.<{CHARS}}\n" for line in lines).encode()
    while data:
        data = data[os.write(1, data) :]
