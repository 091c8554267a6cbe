"""One rank of a bench: meet the others, agree, walk the rounds; rank 0 tells."""

import contextlib
import os
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
    for signum in (signal.SIGINT, signal.SIGPIPE):  # Ctrl-C, `| head`: no traceback of every rank
        signal.signal(signum, signal.SIG_DFL)
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
    except Exception as fault:
        meeting.report_death()
        if environ.get("SPAWNLAUNCH_DEBUG"):
            raise
        print(
            f"spawnlaunch.bench: internal error on rank {meeting.rank}: {type(fault).__name__}: "
            f"{fault}; this is a fault of spawnlaunch, set SPAWNLAUNCH_DEBUG=1 to see where",
            file=sys.stderr,
            flush=True,
        )
        return os.EX_SOFTWARE
    if error and meeting.rank == 0:
        print(f"spawnlaunch.bench: error: {error}", file=sys.stderr, flush=True)
    with contextlib.suppress(LostError):  # who is gone need not be waited for
        meeting.leave()
    return status


def _finish(options: Options, result: Result) -> None:
    """The files first: whoever reads the page may stop before its end."""
    if options.json:
        write(result, options.json)
    if options.plot:
        from spawnlaunch.bench.plot import draw

        draw(result, options.plot)
    print(f"\nadvice: {advice(result)}", flush=True)
