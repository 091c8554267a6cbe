"""What differs between the two launchers, and is meant to: the table of docs/torchrun.md, as rules.

A finding is a facet that is not the same under both. It is expected where a rule of DIFFERENCES
knows the facet and holds for the two values.
"""

import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.dropin.launches import Seen
from tests.dropin.line import Line

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HERE = (*LOOPBACK, os.uname().nodename, socket.getfqdn())


class Finding(NamedTuple):
    """Something that is not the same."""

    facet: str
    theirs: Any
    ours: Any


class Context(NamedTuple):
    """What a rule may look at besides the two values."""

    line: Line
    theirs: Seen
    ours: Seen

    @property
    def typed(self) -> str:
        return f"{dict(self.line.environ)} {self.line.text}".replace("_", "-").lower()


class Difference(NamedTuple):
    """A row of the table: its name there, the facets it is about, and when it is meant so."""

    name: str
    facet: str  # a regular expression
    holds: Callable[[Any, Any, Context], bool]


def findings(theirs: Seen, ours: Seen) -> Iterator[Finding]:
    """What is not the same."""
    if not theirs.workers or not ours.workers:
        if bool(theirs.workers) != bool(ours.workers):
            yield Finding("refused", theirs.status, ours.status)
        else:
            yield from _unless_same("status of a refusal", theirs.status, ours.status)
        return
    yield from _unless_same("status", theirs.status, ours.status)
    yield from _unless_same("stdout", theirs.stdout, ours.stdout)
    yield from _unless_same("stderr", theirs.stderr, ours.stderr)
    yield from _unless_same("workers", sorted(theirs.workers), sorted(ours.workers))
    for name in theirs.workers.keys() & ours.workers.keys():
        yield from _of_workers(theirs.workers[name], ours.workers[name])
    yield from _unless_same("files", _named(theirs), _named(ours))
    yield from _unless_same("error", _message(theirs.error), _message(ours.error))


def _unless_same(facet: str, theirs: Any, ours: Any) -> Iterator[Finding]:
    if theirs != ours:
        yield Finding(facet, theirs, ours)


def _of_workers(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[Finding]:
    for facet in theirs.keys() | ours.keys():
        one, other = theirs.get(facet), ours.get(facet)
        if isinstance(one, dict) and isinstance(other, dict):
            for name in sorted(one.keys() | other.keys()):
                yield from _unless_same(f"{facet} {name}", one.get(name), other.get(name))
        else:
            yield from _unless_same(facet, one, other)


def _named(seen: Seen) -> dict[str, str]:
    """The files, with what is random in their names left out."""
    return {
        re.sub(r"logs/.*?/attempt", "logs/RUN/attempt", name): text
        for name, text in seen.files.items()
    }


def _message(error: Any) -> Any:
    """What an error file says, without times and paths."""
    try:
        return error["message"]["message"]
    except (KeyError, TypeError):
        return error


# The rules


WORD = re.compile(r"(?:out|err) of \d+")  # of the probe's


def _words(text: str) -> list[str]:
    """What workers wrote, without what stands before it; torchrun tears lines."""
    return sorted(WORD.findall(text))


def _repeated(theirs: str, ours: str, context: Context) -> bool:
    """What the first failure said last is said again, at the end, though it was redirected."""
    more = set(_words(ours)) - set(_words(theirs))
    redirected = (
        {f"err of {rank}" for rank in "01"} if re.search("-r |redir", context.typed) else ()
    )
    same = set(_words(theirs)) <= set(_words(ours)) and more <= {*redirected}
    return context.ours.status != 0 and same


def _piped(theirs: list[str], ours: list[str], context: Context) -> bool:
    """What is a terminal there is a pipe here, for several workers."""
    different = {pair for pair in zip(theirs, ours, strict=True) if pair[0] != pair[1]}
    return different == {("terminal", "pipe or file")} and len(context.ours.workers) > 1


def _own_status(theirs: int, ours: int, context: Context) -> bool:
    """torchrun says 1 whatever happened; here it is the first failure's, or the signal's."""
    wanted = {int(number) for number in re.findall(r"exit (\d+)", context.line.do)}
    wanted |= {128 + int(number) for number in re.findall(r"kill (\d+)", context.line.do)}
    wanted |= {5} if context.line.signals else set()  # what the probe ends with after SIGTERM
    return theirs == 1 and ours in wanted


def _only(*names: str) -> Callable[[dict[str, str], dict[str, str], Context], bool]:
    """Files that are the same but for those of these names."""

    def holds(theirs: dict[str, str], ours: dict[str, str], _: Context) -> bool:
        kept = [
            {name: text for name, text in files.items() if Path(name).name not in names}
            for files in (theirs, ours)
        ]
        return kept[0] == kept[1]

    return holds


def _typed(*words: str) -> Callable[[Any, Any, Context], bool]:
    return lambda _, __, context: any(word in context.typed for word in words)


def _in_tmp(theirs: dict[str, str], ours: dict[str, str], context: Context) -> bool:
    """Without --log-dir: torchrun's directory below TMPDIR, and ours, which is said."""
    of_ours = sorted(ours.values())
    of_theirs = sorted(text for name, text in theirs.items() if not name.endswith("error.json"))
    if not of_ours:  # of --tee all is shown, and nothing kept
        return "log-dir" not in context.typed and "redirects" not in context.typed
    return of_ours == of_theirs and "streams are kept in {tmp}" in context.ours.stderr


def _kept_alone(theirs: dict[str, str], _: Any, context: Context) -> bool:
    """--log-dir alone keeps all streams here, and error files there."""
    kept = {name for name in theirs if not name.endswith(("error.json", "/"))}
    return not kept and not re.search("tee|redirects|-r |-r=", context.typed)


# What lines say that are refused here alone.
FEWER = ("=+2", "filter 7", "'3'", "'abc'", "--master-addr 127.0.0.9", "--master-port {busy} --np")

DIFFERENCES = [
    Difference("prefix", "stdout|stderr", lambda t, o, c: _words(t) == _words(o)),
    Difference("last words", "stderr", _repeated),
    Difference(
        "last words", "streams", lambda t, o, c: "ranks-filter" in c.typed and t[:2] == o[:2]
    ),
    Difference("exit status", "status", _own_status),
    Difference("wrong use", "status of a refusal", lambda t, o, c: o in (2, 126, 127) and t != 0),
    Difference("more is allowed", "refused", lambda t, o, c: t != 0 and bool(c.ours.workers)),
    Difference(
        "less is allowed",
        "refused",
        lambda t, o, c: o == 2 and _typed(*FEWER)(t, o, c),
    ),
    Difference(
        "shell of a job",
        "refused",
        lambda t, o, c: o == 2 and "slurm-job-num-nodes': '2'" in c.typed,
    ),
    Difference(
        "final statuses",
        "status|stdout|stderr|workers",
        lambda t, o, c: c.ours.status in (2, 75) and "max-restarts" in c.typed,
    ),
    Difference(
        "port",
        "environ MASTER_PORT",
        lambda t, o, c: "{port}" not in c.typed or "--standalone" in c.typed,
    ),
    Difference(
        "port",
        "environ MASTER_PORT",
        lambda t, o, c: "rdzv-endpoint" in c.typed or "--master-port" not in c.typed,
    ),
    Difference("address", "environ MASTER_ADDR", lambda t, o, c: t in HERE and o in LOOPBACK),
    Difference(
        "run id",
        "environ TORCHELASTIC_RUN_ID",
        lambda t, o, c: not re.search("rdzv-i(?!d(': | )'')", c.typed),  # typed, and no empty word
    ),
    Difference(
        "run id",
        "environ TORCHELASTIC_RUN_ID",
        lambda t, o, c: "rdzv-e" not in c.typed and o in c.typed,
    ),
    Difference("node rank", "environ NODE_RANK", lambda t, o, c: o == "0"),
    Difference("agent store", "environ TORCHELASTIC_USE_AGENT_STORE", lambda t, o, c: o == "False"),
    Difference("signals", "environ TORCHELASTIC_SIGNALS_TO_HANDLE", lambda t, o, c: o is None),
    Difference(
        "signals",
        "signals",
        lambda t, o, c: o == [n for n in c.line.signals if "USR" in n] + ["SIGTERM"],
    ),
    Difference(
        "error file",
        "environ TORCHELASTIC_ERROR_FILE",
        lambda t, o, c: not t or Path(t).name == Path(o).name or "log-dir" not in c.typed,
    ),
    Difference("error file", "files", _only("error.json")),
    Difference("error file", "error", lambda t, o, c: t is None and o.startswith("rank 1 on ")),
    Difference(
        "device order", "environ CUDA_DEVICE_ORDER", lambda t, o, c: (t, o) == (None, "PCI_BUS_ID")
    ),
    Difference(
        "threads", "environ OMP_NUM_THREADS", lambda t, o, c: t in (None, "1") and int(o) >= 1
    ),
    Difference("marks", "environ TORCHINDUCTOR_CACHE_DIR", lambda t, o, c: o is None),
    Difference("marks", "environ SPAWNLAUNCH_.*", lambda t, o, c: t is None),
    Difference("session", "is session leader", lambda t, o, c: len(c.ours.workers) == 1),
    Difference(
        "run path", "is session leader|main package|main file|path|unbuffered", _typed("run-path")
    ),
    Difference(
        "virtual local rank",
        "argv",
        lambda t, o, c: "--local-rank=0" in o and _typed("virtual-local-rank")(t, o, c),
    ),
    Difference(
        "virtual local rank",
        "environ (CUDA|HIP)_VISIBLE_DEVICES",
        lambda t, o, c: o in (None, "4", "5") and _typed("hip-visible-devices")(t, o, c),
    ),
    Difference("two hyphens", "argv", lambda t, o, c: t == [w for w in o if w != "--"]),
    Difference("log files", "files", _in_tmp),
    Difference("log files", "files", _kept_alone),
    Difference("log files", "stdout|stderr|streams", _typed("/dev/null --local-ranks-filter")),
    Difference("filtered logs", "files", _only("filtered_stdout.log", "filtered_stderr.log")),
    Difference("left behind", "left", lambda t, o, c: (t, o) == ([], [".family"])),
    Difference("terminal", "streams", _piped),
    Difference("terminal", "environ (COLUMNS|LINES)", lambda t, o, c: t is None),
    Difference("file timer", "environ TORCHELASTIC_TIMER_FILE", lambda t, o, c: o is None),
]


def expected(finding: Finding, context: Context) -> Difference | None:
    """The row that a finding is, if any."""
    for row in DIFFERENCES:
        if re.fullmatch(row.facet, finding.facet) and row.holds(*finding[1:], context):
            return row
    return None
