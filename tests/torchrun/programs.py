"""Programs that people start with torchrun: each relies on something that no other relies on.

The scripts are short, and restate what their source shows. What each rank prints is kept in a file,
so that lines of several ranks do not mix.
"""

from typing import Any

from tests.torchrun.lines import FILED, HERE, LOGS, TWO, Line


def program(name: str, flags: str = "", args: str = "", **more: Any) -> Line:
    """A line that starts a script, with the flags that people type most."""
    words = ("--standalone", TWO, LOGS, "-r 1", flags)
    return Line(" ".join((*words, f"{{scripts}}/{name}.py", args)), **{"status": 0, **more})


PROGRAMS = [
    program("ddp", "--max-restarts 1", "--dies"),
    program("mesh"),
    program("rpc", "--role=server"),
    program("collectives", stdin=HERE / "__init__.py"),
    program("record", environ=FILED, status=1),
    program("spawning"),
]
CLIENTS = [
    program("accelerate_loop", needs=("accelerate",)),
    program("hf_trainer", needs=("transformers", "accelerate")),
    program("lightning_module", needs=("lightning",)),
    program(
        "speechbrain_ddp",
        args="hyperparams.yaml --distributed_backend=gloo --device=cpu",
        # Its wheel needs a torch that is built for CUDA: speechbrain finds a stand-in.
        environ={"PYTHONPATH": "{root}:{root}/tests/torchrun/stand_in"},
        needs=("speechbrain",),
    ),
]
