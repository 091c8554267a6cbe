"""Slurm host lists, read without ``scontrol``, which containers and compute images often lack.

A host list is entries separated by commas or white space. An entry is a name in which every pair of
brackets holds numbers and ranges of numbers:

    gpu7                     gpu7
    gpu[1-3]                 gpu1 gpu2 gpu3
    gpu[1,5-6]               gpu1 gpu5 gpu6
    gpu[08-10]               gpu08 gpu09 gpu10            padded as the range's first number is
    gpu[0-8:4]               gpu0 gpu4 gpu8               every fourth
    gpu[1-2]-ib              gpu1-ib gpu2-ib              Slurm 23.11 and later
    rack[1-2]node[3-4]       rack1node3 rack1node4 rack2node3 rack2node4
    login,gpu[1-2],gpu1      login gpu1 gpu2 gpu1         a host may come twice

The order is that of ``scontrol show hostnames``, because SLURM_NODEID counts in it: the last
bracket of a name turns fastest, then the first, the second and so on.

Sources: slurm.conf(5), NodeName; scontrol(1), "show hostnames"; the Slurm 23.11 changelog for
suffixes.
"""

from itertools import islice

TYPE_CHECKING = False  # typing is not imported to run: this module lies on the launch path
if TYPE_CHECKING:
    from collections.abc import Iterator

    Span = tuple[int, int]  # [start, end) of what stands between two brackets
    Entry = tuple[list[str], list[Span]]  # texts around the brackets: one more than brackets

MAX_HOSTS = 1_000_000  # beyond any machine; expand() of a mistyped range must not eat the memory
MAX_DIGITS = 18  # a number of so many digits still fits 64 bits
MAX_BRACKETS = 32  # in one name; Slurm itself nests far fewer
EXCERPT_CHARS = 30  # shown on either side of a mistake in a long list


class HostlistError(ValueError):
    """A host list that cannot be read; the message says what stands where, and what to write."""


def first_host(hostlist: str) -> str:
    """The first host. Reads no further than it takes: a long list costs what a short one does.

    Raises HostlistError.
    """
    return host_at(hostlist, 0)


def host_at(hostlist: str, index: int) -> str:
    """The host at `index`, counted from 0 as SLURM_NODEID counts. Raises HostlistError."""
    if index < 0:
        raise HostlistError(f"host number {index} of {_excerpt(hostlist, 0)}: hosts count from 0")
    for host in islice(hosts(hostlist), index, None):
        return host
    raise HostlistError(
        f"host number {index} of {_excerpt(hostlist, 0)}: the list names {count(hostlist)} hosts, "
        f"so the last is number {count(hostlist) - 1}"
    )


def expand(hostlist: str) -> list[str]:
    """Every host in order, repetitions kept. Raises HostlistError, also above MAX_HOSTS."""
    if (total := count(hostlist)) > MAX_HOSTS:
        raise HostlistError(
            f"host list {_excerpt(hostlist, 0)} names {total} hosts, more than {MAX_HOSTS}\n"
            f"hint: look for a range with a digit too many"
        )
    return list(hosts(hostlist))


def count(hostlist: str) -> int:
    """How many hosts the list names, from the ends of its ranges. Raises HostlistError."""
    total = 0
    for _, spans in _entries(hostlist):
        product = 1
        for span in spans:
            product *= sum(len(numbers) for numbers, _ in _ranges(hostlist, span))
        total += product
    return total


def hosts(hostlist: str) -> "Iterator[str]":
    """The hosts one by one, each read when it is asked for. Raises HostlistError."""
    for texts, spans in _entries(hostlist):
        if not spans:
            yield texts[0]
            continue
        inner_last = [*reversed(spans[:-1]), spans[-1]]
        for *others, last in _combinations(hostlist, inner_last):
            parts = [*reversed(others), last]
            yield texts[0] + "".join(n + text for n, text in zip(parts, texts[1:], strict=True))


def _combinations(hostlist: str, spans: "list[Span]") -> "Iterator[tuple[str, ...]]":
    """Every choice of one number per bracket, the last turning fastest; nothing is stored."""
    if not spans:
        yield ()
        return
    for outer in _combinations(hostlist, spans[:-1]):
        for numbers, width in _ranges(hostlist, spans[-1]):
            for number in numbers:
                yield (*outer, f"{number:0{width}d}")


def _entries(hostlist: str) -> "Iterator[Entry]":
    """Cut the list at commas and spaces outside brackets; like Slurm, skip empty entries."""
    text = hostlist.replace(" ", ",").replace("\t", ",").replace("\n", ",")
    position = 0
    empty = True
    while position < len(text):
        entry, position = _entry(hostlist, text, position)
        if entry != ([""], []):
            empty = False
            yield entry
        position += 1
    if empty:
        raise HostlistError(
            f"host list {_excerpt(hostlist, 0)} names no host\n"
            f"hint: a host list reads like gpu7 or gpu[1-3,5]"
        )


def _entry(hostlist: str, text: str, position: int) -> "tuple[Entry, int]":
    """The entry at `position`, and where it ends. `text` has commas for all white space."""
    texts: list[str] = []
    spans: list[Span] = []
    while True:
        comma = text.find(",", position)
        end = comma if comma >= 0 else len(text)
        opening = text.find("[", position, end)
        stop = opening if opening >= 0 else end
        stray = text.find("]", position, stop)
        if stray >= 0:
            raise _error(hostlist, stray, "this ] closes no [", "remove it, or open it: gpu[1-3]")
        texts.append(text[position:stop])
        if opening < 0:
            return (texts, spans), end
        closing = text.find("]", opening)
        nested = text.find("[", opening + 1, closing if closing >= 0 else len(text))
        if closing < 0 or nested >= 0:
            raise _error(hostlist, opening, "this [ is not closed", "close it: gpu[1-3]")
        spans.append((opening + 1, closing))
        if len(spans) > MAX_BRACKETS:
            why = "too many brackets in a name"
            raise _error(hostlist, opening, why, "put commas between hosts")
        position = closing + 1


def _ranges(hostlist: str, span: "Span") -> "Iterator[tuple[range, int]]":
    """The numbers between two brackets, range by range, each with the digits it is padded to."""
    position, end = span
    while True:
        comma = hostlist.find(",", position, end)
        stop = comma if comma >= 0 else end
        yield _range(hostlist, position, hostlist[position:stop])
        if comma < 0:
            return
        position = comma + 1


def _range(hostlist: str, position: int, text: str) -> tuple[range, int]:
    """One of ``7``, ``08-10``, ``0-8:4``: the numbers, and the digits they are padded to."""
    ends, colon, stride = text.partition(":")
    first, dash, last = ends.partition("-")
    low = _number(hostlist, position, text, first)
    high = _number(hostlist, position, text, last) if dash else low
    step = _number(hostlist, position, text, stride) if colon else 1
    if high < low:
        why = f"the range {text} runs backwards"
        raise _error(hostlist, position, why, f"write [{last}-{first}]")
    if colon and not dash:
        why = f"{text} has a step but no range"
        raise _error(hostlist, position, why, "write a range before the colon: [0-8:4]")
    if step == 0:
        why = f"the step of {text} is 0"
        raise _error(hostlist, position, why, f"write [{ends}] for every host")
    return range(low, high + 1, step), len(first)


def _number(hostlist: str, position: int, text: str, digits: str) -> int:
    """`digits` as a number; ``int`` alone would also take +1, 1_000 and digits of other scripts."""
    if not digits:
        why = f"{text!r} is missing a number" if text else "a number is missing"
        raise _error(hostlist, position, why, "write numbers and ranges: gpu[1-3,5]")
    if not (digits.isascii() and digits.isdigit()):
        why = f"{digits!r} is no number"
        raise _error(hostlist, position, why, "write digits, and no spaces: gpu[1-3,5]")
    if len(digits) > MAX_DIGITS:
        why = f"a number of {len(digits)} digits"
        raise _error(hostlist, position, why, f"write at most {MAX_DIGITS} digits")
    return int(digits)


def _error(hostlist: str, position: int, why: str, hint: str) -> HostlistError:
    """`position` counts from 0; people count characters from 1."""
    where = f"host list {_excerpt(hostlist, position)}, character {position + 1}"
    return HostlistError(f"{where}: {why}\nhint: {hint}")


def _excerpt(hostlist: str, position: int) -> str:
    """The list, quoted; of a long one what stands around `position`."""
    start, end = max(0, position - EXCERPT_CHARS), position + EXCERPT_CHARS
    before = "..." if start > 0 else ""
    after = "..." if end < len(hostlist) else ""
    return f"{before}{hostlist[start:end]!r}{after}"
