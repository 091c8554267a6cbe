"""The entry: ``python -m spawnlaunch.train``, or the path of this file, as launchers start it."""

import os
import sys

if __package__:
    # With -m the working directory comes first, and a signal.py there would be taken for Python's.
    # After all that is installed it is still searched for the modules of a task.
    try:
        if sys.path[0] in ("", os.getcwd()):
            sys.path.append(sys.path.pop(0))
    except OSError:
        pass  # the working directory has been deleted
else:
    # Started by path, and again in every child that multiprocessing spawns. Then sys.path begins
    # with this directory, whose task.py, data.py and run.py would pass for top-level modules; and
    # what "spawnlaunch" means is decided by the user's directories. So the directory goes, and the
    # package, which imports nothing by itself, is loaded from where this file is.
    import contextlib
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    with contextlib.suppress(OSError):
        sys.path[:] = [one for one in sys.path if one == "" or os.path.abspath(one) != here]
    package = os.path.dirname(here)
    if not os.path.exists(os.path.join(package, "__init__.py")):  # in the source repository
        package = os.path.join(package, "spawnlaunch")
    spec = importlib.util.spec_from_file_location(
        "spawnlaunch", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["spawnlaunch"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["spawnlaunch"])

from spawnlaunch.train import commandline, ending, errors


def main() -> None:
    """Run one worker, from its flags to its exit status."""
    try:
        _main()
    except SystemExit as ended:  # a refusal, --help, or sys.exit() in a task
        if isinstance(ended.code, str):
            errors.write_stderr(f"{ended.code}\n")
        ending.leave(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    except BaseException as error:
        ending.crash(error)


def _main() -> None:
    ending.leave_on_interrupt()
    ending.note_signals()
    try:
        config, task_class = commandline.parse(sys.argv[1:])
        # Only now: torch takes a second to import, and a mistyped flag should not.
        from spawnlaunch.train.run import run

        status = run(config, lambda: commandline.build_task(config, task_class), ending.PREEMPTED)
    except errors.RefusedError as refusal:
        errors.refuse(refusal)
    except errors.StoppedError as reason:
        ending.stop(reason)
    except errors.ElsewhereError:
        ending.follow()
    except Exception as error:
        ending.crash(error)
    ending.leave(status)


if __name__ == "__main__":
    main()
