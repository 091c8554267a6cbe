r"""Write random bytes to both streams, in random chunks, now and then with a pause.

Usage: babble.py SEED

Each stream of each rank has letters of its own; common to all are \n, \r, escapes, halves of UTF-8
characters and null bytes. Whoever knows the seed knows what comes: `pieces`.
"""

import os
import random
import string
import sys
import time

COMMON = (b"\n", b"\n", b"\n", b"\r", b"\r\n", b"\x1b[K", b"\xc3", b"\xc3\xa4", b"\0", b"%")


def letters(rank: int, fd: int) -> bytes:
    """What only this stream has: three lower-case letters."""
    first = 6 * rank + 3 * (fd - 1)
    return string.ascii_lowercase[first : first + 3].encode()


def pieces(seed: str, rank: int) -> list[tuple[int, bytes, float]]:
    """The writes of a rank: descriptor, bytes, and the seconds to wait before."""
    rng = random.Random(f"{seed}:{rank}")
    longest, common = rng.choice((1, 20, 3000)), rng.choice((0.01, 0.2, 0.9))
    written = []
    for _ in range(rng.choice((3, 60, 600))):
        fd = rng.choice((1, 2))
        own = [bytes([letter]) for letter in letters(rank, fd)]
        chosen = (rng.choice(COMMON if rng.random() < common else own)
                  for _ in range(rng.randint(1, longest)))  # fmt: skip
        written.append((fd, b"".join(chosen), rng.choice((0, 0, 0, 0, 0, 0.0002, 0.002))))
    return written


if __name__ == "__main__":
    for fd, piece, pause_s in pieces(sys.argv[1], int(os.environ["RANK"])):
        if pause_s:
            time.sleep(pause_s)
        while piece:
            piece = piece[os.write(fd, piece) :]
