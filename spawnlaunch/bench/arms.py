"""The arms: ways to bind the ranks of a node that are measured against each other. Pure.

unpinned   no binding: what a launcher without one leaves
control    the same again: its difference from `unpinned` is noise
far        spread as `auto`, with each rank on the CPUs of another, away from its own device:
           what it loses against `auto` is due to locality, and not to spreading
auto, ...  the policies of --bind, by name

--arm adds others, by the launcher's flags of binding:

--arm smt-off='--smt off'              one flag
--arm two='--bind node --threads 2'    several of them
--arm ring='NCCL_ALGO=Ring'            variables, which every rank is given
--arm eight='--loader-workers 8'       of each DataLoader of the workload `loader`

--launcher has an arm for each launcher, which starts the user's command on this node itself.
"""

import shlex
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from spawnlaunch.base import cpuset, errors, reading
from spawnlaunch.binding import apply, plan
from spawnlaunch.cli import parsing, values
from spawnlaunch.cli.flags import BINDING, spelt
from spawnlaunch.node import hardware

UNPINNED, CONTROL, FAR, AUTO = "unpinned", "control", "far", values.AUTO
POLICIES = {
    UNPINNED: values.NONE,
    CONTROL: values.NONE,
    FAR: AUTO,
    **{name: name for name in values.NAMES if name != values.NONE},
}
BINDS = tuple(name for name in POLICIES if name in values.NAMES)
NAMES = tuple(POLICIES)
CONTROLS = (CONTROL, FAR)  # measured for comparison, and never advised
DEFAULT = (AUTO, UNPINNED)  # unpinned is what torchrun does
WORKERS = "--loader-workers"
LOADER_WORKERS = 8  # at most, unless an arm says how many
# torchrun's default port is the same for all of a node, so it is given a free one.
LAUNCHERS = {
    "torchrun": "-m torch.distributed.run --nproc-per-node {nproc} --master-port {port}",
    "spawnlaunch": "-m spawnlaunch --nproc {nproc}",
}


class ArmRequest(NamedTuple):
    """An arm as the command line requests it."""

    name: str
    flags: tuple[str, ...] = ()  # of the launcher
    environ: tuple[tuple[str, str], ...] = ()  # variables that every rank is given
    loader_workers: int | None = None  # of each rank; None: as many as threads, at most 8
    local_size: int | None = None  # ranks of a node that take part; None: all of them
    launcher: str = ""  # that starts the ranks of the command; "": the bench does

    def typed(self, bindings: Sequence[apply.Binding]) -> str:
        """The launcher's flags for this arm; for `far`, the CPUs of each rank."""
        if self.name == FAR:
            cpus = ":".join(cpuset.format(binding.cpus) for binding in bindings)
            return f"--bind {cpus}"
        return self.launcher or shlex.join(self.flags)

    @property
    def beside(self) -> str:
        """The settings of an arm that are not flags of the launcher; "" for none."""
        words = [f"{name}={value}" for name, value in self.environ]
        words += [] if self.loader_workers is None else [f"num_workers={self.loader_workers}"]
        return " ".join(words)


def of_name(name: str) -> ArmRequest:
    """The request for one of NAMES."""
    return ArmRequest(name, ("--bind", POLICIES[name]))


def of_size(local_size: int) -> ArmRequest:
    """An arm with this number of ranks on each node, bound as by default."""
    return ArmRequest(str(local_size), ("--bind", AUTO), local_size=local_size)


def of_launcher(name: str, nproc: int) -> ArmRequest:
    """An arm for a launcher, which binds the ranks of the command itself."""
    shown = f"python {LAUNCHERS[name].partition(' --master-port')[0].format(nproc=nproc)}"
    return ArmRequest(name, ("--bind", values.NONE), launcher=shown)


def launcher_words(name: str, nproc: int, port: int, command: Sequence[str]) -> tuple[str, ...]:
    """The command line of a launcher that starts a command so many times."""
    options = LAUNCHERS[name].format(nproc=nproc, port=port).split()
    return (sys.executable, *options, "--no-python", *command)


def of_flags(text: str) -> ArmRequest:
    """Read an arm `NAME=FLAGS`; raises ArgumentTypeError."""
    name, equals, flags = text.partition("=")
    if not (equals and name and flags.strip()) or not name.replace("-", "").isalnum():
        raise ArgumentTypeError(
            f"{text!r} is not an arm; use a name, = and flags, as --arm smt-off='--smt off'"
        )
    if name in NAMES:
        raise ArgumentTypeError(f"{name!r} is an arm of the bench; choose another name")
    try:
        words = shlex.split(flags.replace(f"{WORKERS}=", f"{WORKERS} "))
    except ValueError as error:
        raise ArgumentTypeError(f"{text}: {error}; close the quotes") from None
    environ: list[tuple[str, str]] = []
    while words and not words[0].startswith("-") and "=" in words[0]:
        variable, _, value = words.pop(0).partition("=")
        environ.append((variable, value))
    workers = None
    if WORKERS in words:
        at = words.index(WORKERS)
        number = "".join(words[at + 1 : at + 2])
        if not reading.is_number(number) or int(number) < 1:
            raise ArgumentTypeError(f"{name}: {WORKERS} needs a number; use {WORKERS} 4")
        workers = int(number)
        del words[at : at + 2]
    try:
        request = parsing.parse(["-m", *words, "--", "a.worker"], {}, sys.executable)
    except errors.UsageError as error:
        raise ArgumentTypeError(f"{name}: {error}") from None
    if request.program.target != "a.worker":
        raise ArgumentTypeError(
            f"{name}: {request.program.target!r} is not a flag; use flags of binding alone"
        )
    for flag in request.flags:
        if spelt(flag.partition("=")[0]).section != BINDING:  # type: ignore[union-attr]
            raise ArgumentTypeError(f"{name}: {flag} does not bind; an arm has flags of binding")
    return ArmRequest(name, tuple(words), tuple(environ), workers)


class Planned(NamedTuple):
    """The bindings of an arm on one node, or the reason why there are none."""

    bindings: tuple[apply.Binding, ...]  # of the local ranks that are planned, in their order
    missing: str = ""  # why there are none


def on_node(
    node: hardware.Node,
    requests: Sequence[ArmRequest],
    plan_of: Callable[[ArmRequest], tuple[apply.Binding, ...]],
) -> dict[str, Planned]:
    """The bindings of all ranks of a node under each arm; `plan_of` goes by the flags of one."""
    return {
        arm.name: far(node, plan_of(arm)) if arm.name == FAR else Planned(plan_of(arm))
        for arm in requests
    }


def far(node: hardware.Node, best: Sequence[apply.Binding]) -> Planned:
    """The bindings of `auto`, shifted so that the most ranks are away from their devices."""
    if all(binding.device is None for binding in best):
        return Planned((), "no rank has a device here that it could be far from")
    shifted = [_shifted(node, best, by) for by in range(1, len(best))]
    most = max(map(_count_far, shifted), default=0)
    if most <= _count_far(best):
        return Planned((), "no binding is further from the devices than those of auto")
    return Planned(max(shifted, key=lambda each: (_count_far(each), _sum_distances(node, each))))


def _shifted(
    node: hardware.Node, best: Sequence[apply.Binding], by: int
) -> tuple[apply.Binding, ...]:
    """Bindings that give rank r the CPUs of rank r + by, and its own device."""
    bindings = []
    for r, binding in enumerate(best):
        there = best[(r + by) % len(best)]
        is_known = binding.locality != plan.UNTOLD
        locality = plan.locality(node, binding.device, is_known, there.cpus)
        bindings.append(there._replace(local_rank=r, device=binding.device, locality=locality))
    return tuple(bindings)


def _count_far(bindings: Iterable[apply.Binding]) -> int:
    return sum(1 for binding in bindings if binding.locality == plan.FAR)


def _sum_distances(node: hardware.Node, bindings: Iterable[apply.Binding]) -> int:
    """The sum of the NUMA distances from the ranks to their devices, where they are known."""
    distances = {(each.id, other): far for each in node.numa for other, far in each.distances}
    total = 0
    for binding in bindings:
        home = None if binding.device is None else node.devices[binding.device].numa
        here = min((each.id for each in node.numa if each.cpus & binding.cpus), default=None)
        total += distances.get((here, home), 0) if here is not None and home is not None else 0
    return total


class Effect(NamedTuple):
    """The effect of an arm on a rank: of arms with equal effects on all ranks one is measured."""

    cpus: str
    memory: str  # the policy and its nodes; empty where there is no choice
    threads: int
    loader_workers: int
    local_size: int | None
    environ: tuple[tuple[str, str], ...]
    launcher: str = ""


def effect(
    node: hardware.Node, binding: apply.Binding, allowed: cpuset.CpuSet, arm: ArmRequest
) -> Effect:
    """The effect of a binding; no binding is the same as one to all allowed CPUs."""
    nodes = binding.memory_nodes
    has_choice = len(node.memory_nodes) > 1 and binding.mem_bind != values.NO_MEM
    return Effect(
        cpuset.format(binding.cpus or allowed),
        f"{binding.mem_bind} {cpuset.format(nodes)}" if has_choice and nodes else "",
        binding.threads,
        arm.loader_workers or min(binding.threads, LOADER_WORKERS),
        arm.local_size,
        arm.environ,
        arm.launcher,
    )


def omitted(effects: Mapping[str, Sequence[Effect | str | None]]) -> dict[str, str]:
    """The arms that are not measured, and why.

    `effects` has for each arm, in the order of the arms, its effect on each rank of the job, or why
    there is no such arm on the rank's node. Of arms with equal effects, the first arm of all is
    kept, or else the launcher's default.
    """
    out: dict[str, str] = {}
    distinct: dict[str, Sequence[Effect | str | None]] = {}
    first = next(iter(effects))
    for name in sorted(effects, key=lambda name: (name != first, name != AUTO)):
        ranks = effects[name]
        why = next((each for each in ranks if isinstance(each, str)), None)
        twin = next((other for other, its in distinct.items() if its == ranks), None)
        if why is not None:
            out[name] = why
        elif twin is not None and name != CONTROL:
            out[name] = f"it makes no difference here: every rank is bound as under {twin}"
        else:
            distinct[name] = ranks
    return out
