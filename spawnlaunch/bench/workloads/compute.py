"""Products of matrices that fit the caches of a core: all that counts is time on a core."""

import torch

from spawnlaunch.bench.gang import Gang, steps_per_second

SIZE = 256  # three matrices of float32 are 768 KiB
PRODUCTS = 20  # in a step, so that looking at the clock costs nothing


def missing(_gang: Gang) -> str | None:
    return None


def measure(gang: Gang) -> dict[str, float]:
    """GFLOP/s of this rank; a product is 2 * SIZE**3 operations."""
    a, b = torch.rand(2, SIZE, SIZE)
    c = torch.empty(SIZE, SIZE)

    def step() -> None:
        for _ in range(PRODUCTS):
            torch.mm(a, b, out=c)

    return {"": steps_per_second(gang, step) * PRODUCTS * 2 * SIZE**3 / 1e9}
