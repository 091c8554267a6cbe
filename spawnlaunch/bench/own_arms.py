"""Arms by flags: `--arm NAME=FLAGS`, and the sets of such arms that are ready-made.

--arm smt-off='--smt off'              any of the launcher's flags of binding
--arm two='--bind node --threads 2'    several of them
--arm ring='NCCL_ALGO=Ring'            variables, which every rank is given
--arm eight='--loader-workers 8'       of each DataLoader of the workload `loader`
"""

import shlex
import sys
from argparse import ArgumentTypeError

from spawnlaunch.base import errors, reading
from spawnlaunch.bench import arms
from spawnlaunch.cli import parsing
from spawnlaunch.cli.flags import BINDING, Request, spelt

WORKERS = "--loader-workers"
POWERS = (1, 2, 4, 8, 16)
# Arms that make no difference on a machine are left out there, so that a set may have many.
SETS = {
    "smt": {"smt-off": "--smt off"},
    "threads": {f"threads-{n}": f"--threads {n}" for n in POWERS},
    "memory": {"mem-bind": "--mem-bind bind", "mem-none": "--mem-bind none"},
    "reserved": {"first-free": "--reserve-cpus first-per-l3", "cpu0-free": "--reserve-cpus 0"},
    "loader": {f"loader-{n}": f"{WORKERS} {n}" for n in POWERS},
    "nics": {arms.NIC_NEAR: "", arms.NIC_FAR: ""},
}
HELP = {
    "smt": "one hardware thread of each core",
    "threads": "1 to 16 cores for each rank",
    "memory": "memory bound to the NUMA node, and left alone",
    "reserved": "cores left to the system",
    "loader": "1 to 16 DataLoader workers",
    "nics": "all-reduce over the adapter next to the device, and over the farthest",
}


def arm(text: str) -> arms.ArmRequest:
    """Read an arm `NAME=FLAGS`; raises ArgumentTypeError."""
    name, equals, flags = text.partition("=")
    if not (equals and name and flags.strip()) or not name.replace("-", "").isalnum():
        raise ArgumentTypeError(
            f"{text!r} is no arm; type a name, = and flags, as in --arm smt-off='--smt off'"
        )
    if name in arms.NAMES:
        raise ArgumentTypeError(f"{name!r} is an arm of ours; choose another name")
    return of_flags(name, flags)


def of_flags(name: str, text: str) -> arms.ArmRequest:
    """Make an arm from its flags; raises ArgumentTypeError."""
    try:
        words = shlex.split(text.replace(f"{WORKERS}=", f"{WORKERS} "))
    except ValueError as error:
        raise ArgumentTypeError(f"{name}={text}: {error}; close the quotes") from None
    environ: list[tuple[str, str]] = []
    while words and not words[0].startswith("-") and "=" in words[0]:
        variable, _, value = words.pop(0).partition("=")
        environ.append((variable, value))
    workers = None
    if WORKERS in words:
        at = words.index(WORKERS)
        number = "".join(words[at + 1 : at + 2])
        if not reading.is_number(number) or int(number) < 1:
            raise ArgumentTypeError(f"{name}: {WORKERS} needs a number; type {WORKERS} 4")
        workers = int(number)
        del words[at : at + 2]
    request = _request(name, words)
    for flag in request.flags:
        if spelt(flag.partition("=")[0]).section != BINDING:  # type: ignore[union-attr]
            raise ArgumentTypeError(f"{name}: {flag} does not bind; an arm has flags of binding")
    return arms.ArmRequest(name, tuple(words), tuple(environ), workers)


def _request(name: str, words: list[str]) -> Request:
    try:
        request = parsing.parse(["-m", *words, "--", "a.worker"], {}, sys.executable)
    except errors.UsageError as error:
        raise ArgumentTypeError(f"{name}: {error}") from None
    if request.program.target != "a.worker":
        raise ArgumentTypeError(
            f"{name}: {request.program.target!r} is no flag; type flags of binding alone"
        )
    return request


def sets(names: tuple[str, ...]) -> tuple[arms.ArmRequest, ...]:
    """The arms of ready-made sets."""
    return tuple(
        of_flags(name, flags) if flags else arms.request_of(name)
        for each in names
        for name, flags in SETS[each].items()
    )
