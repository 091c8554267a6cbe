"""Report what a preloaded worker finds, having used processes of all kinds."""

import multiprocessing
import sys

import torch
from torch.utils.data import DataLoader

from tests.workers.reporting import report


def double(number: int) -> int:
    return 2 * number


if __name__ == "__main__":
    pools, loaders = {}, {}
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            pools[method] = pool.map(double, [1, 2])
        loader = DataLoader([1, 2, 3], num_workers=1, multiprocessing_context=method)
        loaders[method] = [int(item) for item in loader]
    report(
        argv=sys.argv,
        name=__name__,
        file=__file__,
        path=sys.path[0],
        threads=torch.get_num_threads(),
        pools=pools,
        loaders=loaders,
        write_through=sys.stdout.write_through,
    )
    if len(sys.argv) > 1:
        raise SystemExit(int(sys.argv[1]))
