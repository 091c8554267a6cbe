"""What differs between the two launchers, and is meant to: the table of docs/torchrun.md, as rules.

A finding is a facet that is not the same under both. It is expected where a rule of DIFFERENCES
knows the facet and holds for the two values. Some rules hold for lines only that name the row.
"""

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.torchrun.runner import Both, Seen

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HERE = (*LOOPBACK, os.uname().nodename, socket.getfqdn())
NOT_EVERYWHERE = ["two hyphens"]  # some versions of Python have this difference
Rule = Callable[[Any, Any, Both], bool]  # is given torchrun's value, ours, and all that was seen


class Finding(NamedTuple):
    """Something that is not the same."""

    facet: str
    theirs: Any
    ours: Any


class Difference(NamedTuple):
    """A row of the table: its name there, the facets it is about, and when it is meant so."""

    name: str
    facet: str  # a regular expression
    holds: Rule


def row_of(finding: Finding, both: Both) -> str:
    """The name of the row that expects a finding; "" if none does."""
    shown = [row for row in WHERE_SHOWN if row.name in both.line.rows]
    for row in (*ANYWHERE, *shown):
        is_about = re.fullmatch(row.facet, finding.facet)
        if is_about and row.holds(finding.theirs, finding.ours, both):
            return row.name
    return ""


def wrong(both: Both) -> list[str]:
    """What differs and no row expects, and rows that the line is to show and does not."""
    seen = [(finding, row_of(finding, both)) for finding in findings(both)]
    return [
        *(
            f"{facet}: torchrun {theirs!r}, spawnlaunch {ours!r}"
            for (facet, theirs, ours), row in seen
            if not row
        ),
        *(
            f"{shown!r} is not seen {facet}".strip()
            for shown, facet in both.line.rows.items()
            if shown not in NOT_EVERYWHERE
            and not any(row == shown and facet in ("", found.facet) for found, row in seen)
        ),
    ]


def findings(both: Both) -> Iterator[Finding]:
    """What is not the same."""
    theirs, ours = both.theirs, both.ours
    if both.line.is_program:
        yield from _unless_same("began", theirs.statuses, [both.line.status])
    elif not theirs.workers or not ours.workers:
        is_refused = not theirs.workers and not ours.workers
        yield Finding("both refuse" if is_refused else "one refuses", theirs, ours)
        return
    for facet in ("statuses", "stdout", "stderr"):
        yield from _unless_same(facet, getattr(theirs, facet), getattr(ours, facet))
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


def _typed(both: Both) -> str:
    return f"{dict(both.line.environ)} {both.line.text}".replace("_", "-").lower()


def _words(text: str) -> list[str]:
    """What workers wrote, without what stands before it; torchrun tears lines."""
    return sorted(WORD.findall(text))


def _repeated(theirs: str, ours: str, both: Both) -> bool:
    """What the first failure said last is said again, at the end, though it was redirected."""
    more = set(_words(ours)) - set(_words(theirs))
    is_redirected = re.search("-r |redir", _typed(both))
    return (
        any(both.ours.statuses)
        and set(_words(theirs)) <= set(_words(ours))
        and more <= ({"err of 0", "err of 1"} if is_redirected else set())
    )


def _piped(theirs: list[str], ours: list[str], both: Both) -> bool:
    """What is a terminal there is a pipe here, for several workers."""
    different = {pair for pair in zip(theirs, ours, strict=True) if pair[0] != pair[1]}
    return different == {("terminal", "pipe or file")} and len(both.ours.workers) > 1


def _own_status(theirs: list[int], ours: list[int], both: Both) -> bool:
    """torchrun says 1 whatever happened; here it is the first failure's, or the signal's."""
    wanted = {int(number) for number in re.findall(r"exit (\d+)", both.line.do)}
    wanted |= {128 + int(number) for number in re.findall(r"kill (\d+)", both.line.do)}
    wanted |= {5} if both.line.signals else set()  # what the probe ends with after SIGTERM
    return {*theirs} == {1} and len({*ours}) == 1 and {*ours} <= wanted


def _but_for(*names: str) -> Rule:
    """Files that are the same but for those of these names."""

    def kept(files: dict[str, str]) -> dict[str, str]:
        return {name: text for name, text in files.items() if Path(name).name not in names}

    return lambda theirs, ours, _: kept(theirs) == kept(ours)


def _in_tmp(theirs: dict[str, str], ours: dict[str, str], both: Both) -> bool:
    """Without --log-dir: torchrun's directory below TMPDIR, and ours, which is said."""
    of_ours = sorted(ours.values())
    of_theirs = sorted(text for name, text in theirs.items() if not name.endswith("error.json"))
    if not of_ours:  # of --tee all is shown, and nothing kept
        return bool(re.search("-t(ee)?", _typed(both))) and "log-dir" not in _typed(both)
    return of_ours == of_theirs and "streams are kept in {tmp}" in both.ours.stderr


def _kept_alone(theirs: dict[str, str], _: Any, both: Both) -> bool:
    """--log-dir alone keeps all streams here, and error files there."""
    kept = {name for name in theirs if not name.endswith(("error.json", "/"))}
    return not kept and not re.search("tee|redirects|-r |-r=", _typed(both))


def _error_place(theirs: str, ours: str, both: Both) -> bool:
    return not theirs or Path(theirs).name == Path(ours).name or "log-dir" not in _typed(both)


def _free_port(_: str, __: str, both: Both) -> bool:
    """None is typed, or torchrun's store has it, or torchrun does not use it."""
    typed = _typed(both)
    is_typed = re.search("(--|pet-)master-port|static", typed)
    return not is_typed or "c10d" in typed or "--standalone" in typed


def _run_id(_: str, ours: str, both: Both) -> bool:
    """None is typed that is no empty word, or it is typed and torchrun does not use it."""
    typed = _typed(both)
    is_typed = re.search(r"rdzv-i(?!d(': | )'')", typed)
    return not is_typed or ("rdzv-e" not in typed and ours in typed)


def _signals(_: list[str], ours: list[str], both: Both) -> bool:
    """SIGUSR1 and SIGUSR2 are passed on, and the launch is ended by SIGTERM."""
    passed = [name for name in both.line.signals if "USR" in name]
    return bool(both.line.signals) and ours == [*passed, "SIGTERM"]


def _filtered(theirs: list[str], ours: list[str], both: Both) -> bool:
    return "ranks-filter" in _typed(both) and theirs[:2] == ours[:2]


def _ours_is(*values: Any) -> Rule:
    return lambda _, ours, __: ours in values


def _both_refuse(theirs: Seen, ours: Seen, _: Both) -> bool:
    is_told = {*ours.statuses} <= {2, 126, 127}
    return all(theirs.statuses) and (is_told or ours.statuses == theirs.statuses)


def _refused_here(_: Seen, ours: Seen, __: Both) -> bool:
    return ours.statuses == [2]


# Any line may have these.
ANYWHERE = [
    Difference("prefix", "stdout|stderr", lambda t, o, _: _words(t) == _words(o)),
    Difference("last words", "stderr", _repeated),
    Difference("last words", "streams", _filtered),
    Difference("exit status", "statuses", _own_status),
    Difference("port", "environ MASTER_PORT", _free_port),
    Difference("address", "environ MASTER_ADDR", lambda t, o, _: t in HERE and o in LOOPBACK),
    Difference("run id", "environ TORCHELASTIC_RUN_ID", _run_id),
    Difference(
        "node rank",
        "environ NODE_RANK",
        lambda _, o, both: o in map(str, range(both.line.launchers)),
    ),
    Difference("agent store", "environ TORCHELASTIC_USE_AGENT_STORE", _ours_is("False")),
    Difference("signals", "environ TORCHELASTIC_SIGNALS_TO_HANDLE", _ours_is(None)),
    Difference("signals", "signals", _signals),
    Difference("error file", "environ TORCHELASTIC_ERROR_FILE", _error_place),
    Difference("error file", "files", _but_for("error.json")),
    Difference("error file", "error", lambda t, o, _: t is None and o.startswith("rank 1 on ")),
    Difference("device order", "environ CUDA_DEVICE_ORDER", _ours_is("PCI_BUS_ID")),
    Difference(
        "threads", "environ OMP_NUM_THREADS", lambda t, o, _: t in (None, "1") and int(o or 0) > 0
    ),
    Difference("marks", "environ TORCHINDUCTOR_CACHE_DIR", _ours_is(None)),
    Difference("marks", "environ SPAWNLAUNCH_.*", lambda t, _, __: t is None),
    Difference("session", "is session leader", lambda _, __, both: len(both.ours.workers) == 1),
    Difference("log files", "files", _in_tmp),
    Difference("log files", "files", _kept_alone),
    Difference("terminal", "streams", _piped),
]
# And these those lines only that are to show them.
WHERE_SHOWN = [
    Difference("wrong use", "both refuse", _both_refuse),
    Difference("more is allowed", "one refuses", lambda _, ours, __: bool(ours.workers)),
    Difference("less is allowed", "one refuses", _refused_here),
    Difference("shell of a job", "one refuses", _refused_here),
    Difference("final statuses", "stdout|stderr|workers", lambda *_: True),
    Difference("final statuses", "statuses", _ours_is([2], [75])),
    Difference("signals", "ignored", lambda t, o, _: {*o} == {*t, signal.SIGHUP}),
    Difference(
        "run path", "is session leader|main (package|file)|path|unbuffered", lambda *_: True
    ),
    Difference("virtual local rank", "argv", lambda _, o, __: "--local-rank=0" in o),
    Difference(
        "virtual local rank", "environ (CUDA|HIP)_VISIBLE_DEVICES", _ours_is(None, "4", "5")
    ),
    Difference("two hyphens", "argv", lambda t, o, _: t == [w for w in o if w != "--"]),
    Difference("log files", "stdout|stderr|streams", lambda *_: True),
    Difference("filtered logs", "files", _but_for("filtered_stdout.log", "filtered_stderr.log")),
    Difference("left behind", "left", lambda t, o, _: (t, o) == ([], [".family"])),
    # The terminal has 90 columns and 20 rows, and a prefix four.
    Difference("terminal", "environ (COLUMNS|LINES)", _ours_is("86", "20")),
    Difference("open files", "streams", lambda t, o, _: (t[0], o[0]) == ("closed", "device")),
    Difference("file timer", "environ TORCHELASTIC_TIMER_FILE", _ours_is(None)),
]
DIFFERENCES = [*ANYWHERE, *WHERE_SHOWN]
