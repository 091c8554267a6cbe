"""The command line: flags in, a Request out.

Nothing else in the launcher parses argv, and settings from the environment are read here too.
The flags end where the worker's command begins, and from there on every word is the worker's,
whatever it looks like: so the cut is found first, and argparse sees only what lies before it.
"""

from __future__ import annotations

import argparse
import os
import sys

from spawnlaunch import __version__, cpuset, values
from spawnlaunch.errors import FlagsError, UsageError
from spawnlaunch.reading import absolute
from spawnlaunch.request import (
    DUMP,
    GRACE_S,
    KILL,
    LOCAL_RANK_ARGS,
    NO_RESTART,
    RESTART_WINDOW_S,
    Program,
    Request,
)
from spawnlaunch.values import DEFAULT, MEM_BINDS, PREFERRED_MEM, StreamsByRank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

PROG = "spawnlaunch"
HERE = "python -m spawnlaunch"  # in lines to type: works wherever the package does

# Spellings of torchrun and torch.distributed.launch that mean a flag of ours.
# Underscores in the name of a flag are read as hyphens before this table is looked at.
ALIASES = {
    "--nproc-per-node": "--nproc",
    "--module": "-m",
    "--numa-binding": "--bind",
    "--shutdown-timeout": "--grace",
    "-r": "--redirects",
    "-t": "--tee",
}

USAGE = """\
python -m spawnlaunch [flags] [script | -m module] [args...]
       python -m spawnlaunch [flags] [-- flags of the bundled training loop]

Start one PyTorch worker per device on this machine, each pinned to its own CPUs, and watch them:
when one fails the others are stopped, and its exit status becomes the launcher's. Everything after
the script or module goes to it verbatim. With neither, the bundled training loop runs."""

EXAMPLES = """\
examples:
  spawnlaunch --nproc 2                          train the bundled model on two workers
  spawnlaunch --nproc 2 -- --steps 100           the same, with flags of the training loop
  spawnlaunch --nproc gpu train.py --lr 3e-4     a script of yours, one worker per GPU
  spawnlaunch --nproc 8 -m my_package.train      a module of yours
  spawnlaunch --nproc 4 --no-python ./a.out      any program

exit status: 0 when every worker ended with 0, else that of the first worker that failed (128 + n
when signal n ended it). When signal n told the launcher to end: 128 + n, unless all workers ended
by themselves with one same status, then that. 124 after --timeout and --on-hang kill. 74 when all
went well, and output could not be written, as on a full disk. 2 for wrong use of this command."""


# Flags that say what the worker's command is; they are a part of it.
KINDS = ("-m", "--no-python")

# Flags that only a launcher that stays above its workers can serve.
NEED_PARENT = (
    *("tee", "local-ranks-filter", "ranks-filter"),
    *("max-restarts", "restart-window", "no-restart-status"),
    *("hang-timeout", "on-hang", "stack-on-usr2"),
    *("timeout", "preload", "result", "grace"),
)


def _reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Its own words, in the error that argparse makes of it."""

    def reader(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return reader


class Page(Exception):
    """What --help and --version ask to be printed, and nothing else to be done."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))

    def _print_message(self, message: str, _: object = None) -> NoReturn:
        """Argparse's own way to print is silent where that fails."""
        raise Page(message)


def parse(argv: Sequence[str], environ: Mapping[str, str], python: str) -> Request:
    """Read the command line (without the program's name) into a Request.

    `python` is the interpreter that workers use where the environment variable PYTHON_EXEC
    (torchrun's) names no other. Raises UsageError; `--help` and `--version` raise Page.
    """
    parser, flags = _build()
    ours, workers = _cut(argv, flags)
    options = vars(parser.parse_args(ours))
    module, no_python = options.pop("m"), options.pop("no_python")
    given = _given(parser, options)
    policy = options.pop("bind")
    if (reserved := options.pop("reserve_cpus")) is not None:
        policy = policy.with_reserve(reserved)
    policy = policy._replace(smt=options.pop("smt") == "on", threads=options.pop("threads"))
    request = Request(
        policy=policy,
        program=_program(workers, module=module, no_python=no_python),
        python=environ.get("PYTHON_EXEC") or python,
        flags=tuple(word for word in ours if word not in KINDS),
        need_parent=tuple(f"--{name}" for name in given),
        grace_s=options.pop("grace"),
        restart_window_s=options.pop("restart_window"),
        timeout_s=options.pop("timeout"),
        hang_timeout_s=options.pop("hang_timeout"),
        **options,
    )
    _check_together(request)
    return request


def _given(parser: argparse.ArgumentParser, options: Mapping[str, object]) -> list[str]:
    """Those of NEED_PARENT that ask for something; --max-restarts=0 does not."""
    named = ((name, name.replace("-", "_")) for name in NEED_PARENT)
    return [name for name, key in named if options[key] != parser.get_default(key)]


def warnings(request: Request, several_nodes: bool) -> list[str]:
    """What was asked for, and does less than one may expect."""
    found = []
    if request.program.kind == "bundled" and not request.program.args:
        found.append(
            "no script is named, so the bundled training loop runs and writes to runs/; for a "
            f"script of yours type its path behind the flags, as in {HERE} --nproc 2 train.py"
        )
    if request.tee and request.tee.used and request.log_dir is None:
        found.append("--tee without --log-dir DIR: all is shown, and nothing is kept in files")
    if request.on_hang == KILL and not request.hang_timeout_s:
        found.append("--on-hang kill without --hang-timeout SECONDS: nobody looks for a hang")
    for flag in ("--restart-window", "--no-restart-status"):
        if flag in request.need_parent and not request.max_restarts:
            found.append(f"{flag} without --max-restarts N: nothing is started anew")
    if request.hang_timeout_s and several_nodes:
        found.append(
            "--hang-timeout: each node listens to its own ranks only, so those that never write "
            "anything seem to hang"
        )
    return found


def _check_together(request: Request) -> None:
    """What each flag allows by itself, and both do not."""
    if request.preload and request.program.kind == "program":
        raise FlagsError("--preload is for Python, and --no-python is not; leave one of them out")
    if request.preload and request.python != sys.executable:
        raise UsageError(
            f"--preload forks {sys.executable}, and PYTHON_EXEC asks for {request.python}; "
            "leave one of them out"
        )
    if request.program.kind == "bundled" and request.local_rank_arg != "none":
        raise FlagsError(
            "--local-rank-arg is for a script of yours, and the bundled training loop reads "
            "LOCAL_RANK; leave it out, or name a script"
        )
    if request.redirects.used and request.log_dir is None:
        raise FlagsError("--redirects needs a place for the files; type --log-dir DIR as well")
    if (request.sysfs_root != "/" or request.allowed_cpus is not None) and not request.explain:
        raise FlagsError("--sysfs-root and --allowed-cpus are for looking; type --explain as well")
    if not os.path.isdir(request.sysfs_root):
        raise UsageError(
            f"--sysfs-root {request.sysfs_root!r} is no directory; type one that has sys and proc"
        )


def _build() -> tuple[_Parser, dict[str, bool]]:
    """The parser, and for every flag whether a separate word follows it as its value."""
    parser = _Parser(
        prog=PROG,
        usage=USAGE,
        epilog=EXAMPLES,
        add_help=False,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=26, width=100
        ),
    )
    parser.add_argument("-h", "--help", action="help", help="show this page")
    version = f"{PROG} {__version__}"
    parser.add_argument("--version", action="version", version=version, help="show the version")
    for add in (_add_workers, _add_binding, _add_nodes, _add_ending, _add_output):
        add(parser)
    takes_value = {
        name: action.nargs is None for action in parser._actions for name in action.option_strings
    }
    return parser, takes_value


def _add_workers(parser: _Parser) -> None:
    add = parser.add_argument_group("workers").add_argument
    add(
        "--nproc",
        type=_reader(values.nproc),
        metavar="N",
        help="workers on this machine: a number, gpu (one per visible GPU), cpu (one per allowed "
        "CPU) or auto (gpu where there is one, else cpu); default 1; also --nproc-per-node, "
        "--nproc_per_node",
    )
    add("-m", action="store_true", help="the script is a module, as in python -m (--module)")
    add(
        "--no-python",
        action="store_true",
        help="the script is a program to run by itself, without Python in front",
    )
    add(
        "--preload",
        type=_reader(values.modules),
        default=(),
        metavar="MODULES",
        help="import these once (torch,numpy), and fork the workers from there: they share the "
        "import and its memory",
    )
    add("--oversubscribe", action="store_true", help="allow more workers than visible GPUs")
    add(
        "--virtual-local-rank",
        action="store_true",
        help="LOCAL_RANK=0 in every worker, and one visible GPU each",
    )
    add(
        "--local-rank-arg",
        choices=LOCAL_RANK_ARGS,
        default="none",
        help="for scripts written for torch.distributed.launch: put --local-rank=N (hyphen) or "
        "--local_rank=N (underscore) before the script's own arguments; default none",
    )


def _add_binding(parser: _Parser) -> None:
    add = parser.add_argument_group("binding").add_argument
    add(
        "--bind",
        type=_reader(values.bind),
        default=DEFAULT,
        metavar="HOW",
        help="auto (default): exclusive shares of whole cores next to the rank's device; node, "
        "socket, exclusive, core-complex (torchrun's --numa-binding), none; or CPUs for each "
        "local rank: 48-55:56-63, or masks: 0xff,0xff00",
    )
    add(
        "--reserve-cpus",
        type=_reader(values.reserve),
        metavar="LIST",
        help="CPUs that no rank gets: a list, or first-per-l3",
    )
    add("--smt", choices=("on", "off"), default="on", help="off: one hardware thread of each core")
    add(
        "--threads",
        type=_reader(values.positive),
        metavar="N",
        help="at most N cores for each rank",
    )
    add(
        "--mem-bind",
        choices=MEM_BINDS,
        default=PREFERRED_MEM,
        help="memory next to the rank's CPUs: preferred (default), bind (never elsewhere), none",
    )
    add(
        "--widen",
        action="store_true",
        help="leave a mask that was set, within a control group's cpuset smaller than the machine",
    )
    add("--quiet", action="store_true", help="no line for each rank at the start")


def _add_nodes(parser: _Parser) -> None:
    add = parser.add_argument_group(
        "several nodes",
        "Under Slurm, Open MPI, MPICH, Intel MPI, PALS, Flux, jsrun and Kubeflow none of these is "
        "needed:\nrank, sizes, address and port are derived.",
    ).add_argument
    add(
        "--nnodes",
        type=_reader(values.nnodes),
        metavar="N",
        help="number of nodes, one launcher on each",
    )
    add(
        "--node-rank", type=_reader(values.whole), metavar="N", help="which of them this is, from 0"
    )
    add("--master-addr", metavar="HOST", help="where rank 0 runs (MASTER_ADDR)")
    add(
        "--master-port",
        type=_reader(values.port),
        metavar="PORT",
        help="where it listens (MASTER_PORT); by hand the default is 29500",
    )
    add(
        "--master-suffix",
        metavar="TEXT",
        help="put behind the derived host name: i makes node7 node7i, .hsn makes it node7.hsn",
    )
    add("--standalone", action="store_true", help="this machine alone, whatever surrounds it")
    add(
        "--rdzv-endpoint",
        type=_reader(values.endpoint),
        metavar="HOST[:PORT]",
        help="torchrun's way to say --master-addr and --master-port; default port 29400",
    )
    add(
        "--rdzv-backend",
        type=_reader(values.backend),
        metavar="NAME",
        help="torchrun's: static or c10d, alike",
    )
    add("--rdzv-id", metavar="ID", help="name of the run (TORCHELASTIC_RUN_ID)")
    add(
        "--world-size",
        type=_reader(values.positive),
        metavar="N",
        help="where a resource manager hides it",
    )
    add(
        "--local-world-size",
        type=_reader(values.positive),
        metavar="N",
        help="likewise, ranks on this node",
    )
    add(
        "--rewrite-slurm-env",
        action="store_true",
        help="give each worker Slurm's variables as a task of srun in its place would have them",
    )


def _add_ending(parser: _Parser) -> None:
    add = parser.add_argument_group("how it ends").add_argument
    add(
        "--grace",
        type=_reader(values.seconds),
        default=GRACE_S,
        metavar="SECONDS",
        help="for workers that are told to end (SIGTERM), before they are killed; default "
        "%(default)g, under Slurm at most what KillWait leaves; also --shutdown-timeout",
    )
    add(
        "--max-restarts",
        type=_reader(values.whole),
        default=0,
        metavar="N",
        help="when a worker fails, stop all and start all anew, up to N times, with another "
        "MASTER_PORT unless you named one; for one machine",
    )
    add(
        "--restart-window",
        type=_reader(values.seconds),
        default=RESTART_WINDOW_S,
        metavar="SECONDS",
        help="workers that fail after so long have all N restarts again; default "
        f"{RESTART_WINDOW_S:g}, 0: never",
    )
    add(
        "--no-restart-status",
        type=_reader(values.statuses),
        default=NO_RESTART,
        metavar="LIST",
        help="a first failure with one of these ends the launch; default "
        f"{','.join(map(str, sorted(NO_RESTART)))} (wrong use, and: saved, start me again)",
    )
    add(
        "--timeout",
        type=_reader(values.seconds),
        default=0.0,
        metavar="SECONDS",
        help="for the whole launch, which then ends as by SIGTERM, with status 124",
    )
    add(
        "--hang-timeout",
        type=_reader(values.seconds),
        default=0.0,
        metavar="SECONDS",
        help="when no rank has written anything for so long, show the stacks of all threads",
    )
    add(
        "--on-hang",
        choices=(DUMP, KILL),
        default=DUMP,
        help="and go on (default: dump), or end the workers, with status 124 (kill; --max-restarts "
        "starts them anew)",
    )
    add(
        "--stack-on-usr2",
        action="store_true",
        help="SIGUSR2 to the launcher shows the stacks, and does not go to the workers",
    )
    add("--result", metavar="FILE", help="how every rank ended, as JSON")


def _add_output(parser: _Parser) -> None:
    add = parser.add_argument_group("output").add_argument
    add(
        "--redirects",
        type=_reader(values.streams),
        default=StreamsByRank(),
        metavar="HOW",
        help="to files in --log-dir only: 1 stdout, 2 stderr, 3 both, 0 neither; 0:3,1:1 by local "
        "rank, r9:3 by global rank",
    )
    add("--tee", type=_reader(values.streams), metavar="HOW", help="likewise, and shown as well")
    add(
        "--log-dir",
        metavar="DIR",
        help="where files of the ranks go: DIR/RUN/attempt_0/RANK/, or a template with {rank}, "
        "{local_rank}, {node_rank}, {host}, {run}, {restart}; by itself it means --tee 3",
    )
    add(
        "--local-ranks-filter",
        type=_reader(values.ranks),
        default=frozenset(),
        metavar="LIST",
        help="show these local ranks only: 0,4-7",
    )
    add(
        "--ranks-filter",
        type=_reader(values.ranks),
        default=frozenset(),
        metavar="LIST",
        help="likewise, by global rank",
    )
    add(
        "--no-prefix",
        action="store_true",
        help="no [RANK] before each line; with several nodes it is [HOST:RANK]",
    )
    add(
        "--explain",
        nargs="?",
        const="text",
        choices=("text", "json"),
        metavar="json",
        help="start nothing; print every derived value and where it came from; =json for programs",
    )
    add("--sysfs-root", default="/", metavar="DIR", help="with --explain: another machine's files")
    add(
        "--allowed-cpus",
        type=_reader(cpuset.parse),
        metavar="LIST",
        help="with --explain: as if these were the allowed CPUs",
    )


def _cut(argv: Sequence[str], flags: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """Split argv where the worker's command begins.

    >>> _cut(["--nproc_per_node", "2", "a.py", "--nproc", "x"], {"--nproc": True})
    (['--nproc=2'], ['a.py', '--nproc', 'x'])

    Left: our flags, each one word. Right: the worker's command; after "--" it may begin with a
    hyphen, and is then the flags of the bundled loop.
    """
    ours: list[str] = []
    words = iter(range(len(argv)))
    for i in words:
        word = argv[i]
        if word == "--":
            return ours, list(argv[i + 1 :])
        if not word.startswith("-"):
            return ours, list(argv[i:])
        name, equals, value = word.partition("=")
        name = _canonical(name)
        if name not in flags:
            from spawnlaunch import strange_flags  # slow to import, and only needed here

            raise FlagsError(strange_flags.advice(word, argv, flags, _canonical))
        if flags[name] and not equals:
            if next(words, None) is None:
                raise FlagsError(f"{name} needs a value; {HERE} --help shows which")
            equals, value = "=", argv[i + 1]
        if equals and not flags[name] and name != "--explain":
            alone = f"{name} {value}" if name == "-m" else name
            raise FlagsError(f"{word}: {name} takes no value; type {alone}")
        if equals and value == "--":  # which argparse would take away
            raise FlagsError(f"{name} needs a value, and -- is none; {HERE} --help shows which")
        ours.append(f"{name}{equals}{value}")
    return ours, []


def _canonical(name: str) -> str:
    hyphened = name.replace("_", "-")
    return ALIASES.get(hyphened, hyphened)


def _program(words: Sequence[str], *, module: bool, no_python: bool) -> Program:
    if module and no_python:
        raise FlagsError("-m and --no-python exclude each other; leave one out")
    if not words or words[0].startswith("-"):
        return _bundled(words, module=module, no_python=no_python)
    target, args = words[0], tuple(words[1:])
    if module:
        return Program("module", target, args)
    if no_python:
        _check_program(target)
        return Program("program", target, args)
    if not os.path.exists(target):
        raise UsageError(
            f"script {target!r} not found: there is no {absolute(target, 'script')}; "
            f"check the path, or type -m {target} for a module, --no-python {target} for a program"
        )
    return Program("script", target, args)


def _bundled(words: Sequence[str], *, module: bool, no_python: bool) -> Program:
    if module:
        raise FlagsError(f"-m needs a module; type {HERE} -m package.module")
    if no_python:
        raise FlagsError(f"--no-python needs a program; type {HERE} --no-python ./program")
    absolute("runs", "the bundled training loop writes to")
    return Program("bundled", "", tuple(words))


def _check_program(target: str) -> None:
    """Refuse a program that execvp would not find: on PATH, unless its name has a slash."""
    places = [""] if os.sep in target else os.get_exec_path()
    if not any(os.access(os.path.join(place, target), os.X_OK) for place in places):
        where = "is not an executable file" if os.sep in target else "is not on PATH"
        raise UsageError(f"program {target!r} {where}; check the name and its x permission")
