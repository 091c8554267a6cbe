"""The entry: ``python -m spawnlaunch.train``, or the path of this file, as launchers start it."""

import importlib.util
import os
import sys

if __package__:
    # With -m the working directory comes first, and a signal.py there would be taken for Python's.
    # Behind all that is installed it is still searched for the modules of a task.
    if sys.path[0] in ("", os.getcwd()):
        sys.path.append(sys.path.pop(0))
else:
    # Started by path, and again in every child that multiprocessing spawns. Then sys.path begins
    # with this directory, whose task.py, data.py and run.py would pass for top-level modules; and
    # what "spawnlaunch" means is decided by the user's directories. So the directory goes, and the
    # package, which imports nothing by itself, is loaded from where this file is.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry == "" or os.path.abspath(entry) != here]
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

from spawnlaunch.train.worker import main

if __name__ == "__main__":
    main()
