"""One rank of a bench: meet the others, agree, walk the rounds; rank 0 tells."""

import sys
from collections.abc import Mapping

from spawnlaunch.bench import place
from spawnlaunch.bench.advice import advice
from spawnlaunch.bench.agree import agree
from spawnlaunch.bench.meeting import Meeting, join
from spawnlaunch.bench.options import Options
from spawnlaunch.bench.result import Result, write
from spawnlaunch.bench.rounds import Part, measure_all
from spawnlaunch.bench.sample import FailedError
from spawnlaunch.errors import UsageError


def run(options: Options, environ: Mapping[str, str]) -> int:
    """Take part; the result is the exit status of every rank."""
    here = place.look(environ)
    meeting = join()
    try:
        agreed = agree(options, here, meeting)
        done = measure_all(Part(options, here, meeting, agreed))
        _finish(options, meeting, done)
    except UsageError as error:
        if meeting.rank == 0:
            _say(f"error: {error}")
        return 2
    except FailedError as error:
        if meeting.rank == 0:
            _say(f"error: {error}")
        return 1
    return 0


def _finish(options: Options, meeting: Meeting, result: Result) -> None:
    if meeting.rank != 0:
        return
    print(f"\nadvice: {advice(result)}", flush=True)
    if options.json:
        write(result, options.json)
    if options.plot:
        from spawnlaunch.bench.plot import draw

        draw(result, options.plot)


def _say(line: str) -> None:
    print(f"spawnlaunch.bench: {line}", file=sys.stderr, flush=True)
