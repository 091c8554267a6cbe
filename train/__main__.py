"""The entry point: ``python -m train``, or the path of this file, as launchers start workers."""

import importlib.util
import os
import sys

if not __package__:
    # Started by path, and again in every child that multiprocessing spawns. Then sys.path begins
    # with this directory, whose task.py, data.py and run.py would pass for top-level modules; and
    # what "train" means is decided by the user's directories, where train.py is a common name.
    # So the directory goes, and the package is loaded from where this file is.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry == "" or os.path.abspath(entry) != here]
    spec = importlib.util.spec_from_file_location(
        "train", os.path.join(here, "__init__.py"), submodule_search_locations=[here]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["train"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["train"])

from train.worker import main

if __name__ == "__main__":
    main()
