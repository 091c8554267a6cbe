"""The program of each rank of `spawnlaunch.launch`: it calls the function, and writes the outcome.

    python -u worker.py DIRECTORY

It is started by its path, so its own package is loaded from its place, whatever sys.path says.
"""

from __future__ import annotations

import faulthandler
import inspect
import os
import pickle
import sys
import traceback

from spawnlaunch.calling import sending


def main(directory: str) -> None:
    """Call the function in the directory; an async function is run to its end.

    The status is 1 where it raises, and that of a SystemExit; a SystemExit with 0 is a failure,
    too.
    """
    from spawnlaunch import witness

    faulthandler.enable()
    witness.begin()
    attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
    outcome = os.path.join(directory, f"{attempt}.{rank}")
    try:
        function, args = sending.receive(directory)
        value = function(*args)
        if inspect.iscoroutine(value):
            import asyncio

            value = asyncio.run(value)
        try:
            sending.put(sending.Returned(value), outcome)
        except OSError:
            raise  # a full disk, or the directory has been removed
        except Exception as error:
            kind = type(value).__name__
            raise TypeError(
                f"the function returned a{'n' * (kind[0] in 'aeio')} {kind} that cannot be "
                f"pickled: {error}; return numbers, text, tensors, or records of them"
            ) from error
    except BaseException as error:
        sending.put(_raised(error), outcome)
        code = error.code if isinstance(error, SystemExit) else 1
        sys.exit(code if isinstance(code, int) and code & 0xFF else 1)


def _raised(error: BaseException) -> object:
    shown = error.__traceback__
    while shown and shown.tb_frame.f_code.co_filename == __file__:
        shown = shown.tb_next
    text = "".join(traceback.format_exception(type(error), error, shown))
    words = "".join(traceback.format_exception_only(type(error), error.with_traceback(None)))
    try:
        data = sending.dumps(error)
        read_back = pickle.loads(data)
    except Exception:  # its class may raise anything
        return sending.Raised(words.strip(), None, text)
    is_same = (type(read_back), str(read_back)) == (type(error), str(error))
    return sending.Raised(words.strip(), data if is_same else None, text)


if __name__ == "__main__":
    sys.path[0] = os.path.abspath(f"{__file__}/../../..")
    import spawnlaunch  # noqa: F401

    del sys.path[0]
    main(sys.argv[1])
