"""Takes a sample whose thread is moved to another CPU, `strays.py moves`, or is not; prints where.

A program, for a sample is a fork: one of a process that has all the libraries of other tests in it
may not be had.
"""

import os
import sys
import threading

from spawnlaunch.bench import sample
from spawnlaunch.bench.effort import Watch
from spawnlaunch.binding.apply import Binding


def main(moves: bool) -> None:
    first, *_, last = sorted(os.sched_getaffinity(0))
    binding = Binding(0, None, frozenset({first}), frozenset(), 1, "local", "")

    def measure(watch: Watch) -> dict[str, float]:
        leave, is_there = threading.Event(), threading.Event()

        def elsewhere() -> None:
            if moves:
                os.sched_setaffinity(0, {last})
            is_there.set()
            leave.wait()

        other = threading.Thread(target=elsewhere)
        watch.start()
        other.start()
        is_there.wait()
        watch.stop()
        leave.set()
        other.join()
        return {"": 1.0}

    taken = sample.of_workload(binding, measure, lambda: False, frozenset({first, last}))
    assert taken.error == ""
    assert taken.effort is not None
    print(taken.effort.strayed)


if __name__ == "__main__":
    main(sys.argv[1:] == ["moves"])
