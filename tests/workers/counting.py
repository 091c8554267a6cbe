"""Write numbered lines to stdout, in pieces, and keep count in a file of what has been written.

Usage: counting.py DIRECTORY LINES [RANK:STATUS]

The count, in DIRECTORY/RANK, is of whole lines, 8 bytes in the machine's order; the worker then
ends with 0, or with STATUS if it is that rank.
"""

import mmap
import os
import sys

rank = os.environ["RANK"]
with open(f"{sys.argv[1]}/{rank}", "w+b") as file:
    file.truncate(8)
    count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
for number in range(int(sys.argv[2])):
    line = f"{number} {'x' * (number * 7 % 200)} end\n".encode()
    cut = number % len(line)
    os.write(1, line[:cut])
    os.write(1, line[cut:])
    count[0] = number + 1
failing, _, status = sys.argv[3].partition(":") if len(sys.argv) > 3 else ("", "", "")
os._exit(int(status) if rank == failing else 0)
