"""What every rank of `spawnlaunch.launch` runs: it calls the function, and leaves the outcome.

    python -u worker.py DIRECTORY

Started by its path, so its own package is loaded from where it lies, whatever sys.path says.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback


def main(directory: str) -> None:
    """Call the function that is there; the status is 1 where it raises."""
    from spawnlaunch.calling import shipping

    faulthandler.enable()
    if (number := os.environ.get("SPAWNLAUNCH_STACK_SIGNAL", "")).isdecimal():
        faulthandler.register(int(number), all_threads=True, chain=False)
    attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
    outcome = os.path.join(directory, f"{attempt}.{rank}")
    try:
        function, args = shipping.receive(directory)
        value = function(*args)
        try:
            shipping.put(shipping.Returned(value), outcome)
        except Exception as error:
            raise TypeError(
                f"the function returned a {type(value).__name__} that cannot be pickled: {error}; "
                "return numbers, text, arrays, or records of them"
            ) from error
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        shipping.put(_raised(error), outcome)
        sys.exit(1)


def _raised(error: BaseException) -> object:
    from spawnlaunch.calling import shipping

    shown = error.__traceback__
    while shown and shown.tb_frame.f_code.co_filename == __file__:
        shown = shown.tb_next
    text = "".join(traceback.format_exception(type(error), error, shown))
    (*_, words) = traceback.format_exception_only(type(error), error)
    try:
        data = shipping.pickler().dumps(error.with_traceback(None))
    except Exception:
        data = None
    return shipping.Raised(words.strip(), text, data)


if __name__ == "__main__":
    sys.path[0] = os.path.abspath(f"{__file__}/../../..")
    import spawnlaunch  # noqa: F401

    del sys.path[0]
    main(sys.argv[1])
