"""What watching costs, in CPU time: less than a tenth of a core for 64 ranks twice a second."""

import os
import sys
from collections.abc import Iterator

import pytest

from spawnlaunch.watch import table
from spawnlaunch.watch.devices import Meter
from spawnlaunch.watch.notes import Histories
from spawnlaunch.watch.sample import FIND_S, Sampler
from tests.support.launching import clean_environ, start

RANKS = 64
SCRIPT = """
import threading, time
for _ in range(20):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
print("ready", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def ranks() -> Iterator[set[int]]:
    alike = {"WORLD_SIZE": str(RANKS), "MASTER_PORT": str(os.getpid())}
    environs = (clean_environ(RANK=str(i), LOCAL_RANK=str(i), **alike) for i in range(RANKS))
    started = [start(sys.executable, "-S", "-c", SCRIPT, environ=each) for each in environs]
    try:
        for one in started:
            assert one.stdout.readline() == "ready\n"
        yield {one.pid for one in started}
    finally:
        for one in started:
            one.kill()
            one.wait()


@pytest.mark.full
def test_64_ranks_twice_a_second_take_less_than_a_tenth_of_a_core(ranks: set[int]) -> None:
    sampler, histories = Sampler(Meter(), lambda rank: rank.pid in ranks), Histories()
    assert {one.pid for one in sampler.sample()} == ranks
    rounds = 20
    before = os.times()
    for _ in range(rounds):
        samples = sampler.sample()
        histories.add(samples)
        table.table(samples, histories.notes(), 120)
    sampled = os.times()
    for _ in range(5):
        sampler.find()
    found = os.times()
    once_s = (sampled.user + sampled.system - before.user - before.system) / rounds
    find_s = (found.user + found.system - sampled.user - sampled.system) / 5
    assert 2 * once_s + find_s / FIND_S < 0.1
