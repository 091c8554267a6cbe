"""One rank of a bench: meet the others, agree, walk the rounds; rank 0 tells."""

import signal
import sys
from collections.abc import Mapping

from spawnlaunch.bench import place
from spawnlaunch.bench.advice import advice
from spawnlaunch.bench.agree import agree
from spawnlaunch.bench.meeting import LostError, join
from spawnlaunch.bench.options import Options
from spawnlaunch.bench.result import Result, write
from spawnlaunch.bench.rounds import Part, measure_all
from spawnlaunch.bench.sample import FailedError
from spawnlaunch.errors import UsageError


def run(options: Options, environ: Mapping[str, str]) -> int:
    """Take part; the result is the exit status of every rank."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C: no traceback from every rank
    here = place.look(environ)
    meeting = join()
    try:
        agreed = agree(options, here, meeting)
        done, error = measure_all(Part(options, here, meeting, agreed))
        status = 1 if error else 0
        if done.measured:
            _finish(options, done)
    except UsageError as refusal:
        status, error = 2, str(refusal)
    except FailedError as failure:
        status, error = 1, str(failure)
    except LostError:
        return 1
    except Exception:
        meeting.report_death()
        raise
    if error and meeting.rank == 0:
        print(f"spawnlaunch.bench: error: {error}", file=sys.stderr, flush=True)
    meeting.leave()
    return status


def _finish(options: Options, result: Result) -> None:
    print(f"\nadvice: {advice(result)}", flush=True)
    if options.json:
        write(result, options.json)
    if options.plot:
        from spawnlaunch.bench.plot import draw

        draw(result, options.plot)
