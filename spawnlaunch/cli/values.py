"""Read the values of flags: a reader for each kind of value, and the records that they make.

A reader takes the text and raises ValueError; its message has the text to use instead.

    --bind auto (default)           a share of the cores next to the device, L3-aligned
    --bind exclusive                the same without regard to L3 groups
    --bind node                     all CPUs of the device's NUMA node
    --bind socket                   all CPUs of the device's package
    --bind core-complex             one L3 group
    --bind none                     no binding
    --bind 48-55:56-63              a list for each local rank
    --bind 0xff,0xff00              a mask for each local rank, as in srun --cpu-bind=mask_cpu

`node`, `socket`, `exclusive` and `core-complex` have the meanings of torchrun --numa-binding.

    --tee 3                         both streams of all ranks
    --tee 0:3,11:1                  by local rank
    --tee r9:3                      by global rank

--redirects has the same values as --tee; both accept more than torchrun's.
"""

from __future__ import annotations

from collections.abc import Iterable

from spawnlaunch.base import cpuset, reading, records

ENDPOINT_PORT = 29400  # torchrun's default for --rdzv-endpoint
MAX_PORT = 65535
MAX_DIGITS_OF_TIME = 30  # longer than any clock runs, and far below a float's infinity
UNITS = {"s": 1, "m": 60, "h": 3600}  # seconds of each unit of time
MOST_LOCAL = 32768  # workers on a machine: as many as it has pids, by default (proc(5), pid_max)

AUTO, EXCLUSIVE, NUMA_NODE, SOCKET = "auto", "exclusive", "node", "socket"
CORE_COMPLEX, NONE, LIST = "core-complex", "none", "list"
NAMES = (AUTO, NUMA_NODE, SOCKET, EXCLUSIVE, CORE_COMPLEX, NONE)
FIRST_PER_L3 = "first-per-l3"

PREFERRED_MEM, BIND_MEM, NO_MEM = "preferred", "bind", "none"
MEM_BINDS = (PREFERRED_MEM, BIND_MEM, NO_MEM)

STDOUT, STDERR = 1, 2

# The keys of --rdzv-conf. Some have no effect here: launchers do not poll, and there is no store.
TIMES = ("join_timeout", "last_call_timeout", "keep_alive_interval", "keep_alive_max_attempt")
RENDEZVOUS = (
    *(*TIMES, "is_host", "read_timeout", "close_timeout", "timeout", "heartbeat_timeout"),
    *("use_libuv", "store_type"),
)
# As in torch/distributed/elastic/rendezvous/api.py, get_as_bool.
YES, NO = ("1", "true", "t", "yes", "y"), ("0", "false", "f", "no", "n")

# Words of --nproc for the devices of one vendor: torch's names of their kinds.
KINDS = {"xpu": "intel", "hpu": "habana", "npu": "huawei"}
PET_NPROC = "PET_NPROC_PER_NODE"  # torchrun's variable for --nproc


class HostPort(records.NamedTuple):
    """The HOST[:PORT] of --rdzv-endpoint; port 0 means any free port."""

    host: str
    port: int


class NodeCount(records.NamedTuple):
    """The number of nodes that work: N, or as many as join, from MIN to MAX."""

    least: int
    most: int


class Policy(records.NamedTuple):
    """The policy by which ranks are bound."""

    name: str = AUTO
    lists: tuple[cpuset.CpuSet, ...] = ()  # with the name "list": the CPUs of each local rank
    # CPUs that no rank gets; FIRST_PER_L3: the first core of each L3 group
    reserve: cpuset.CpuSet | str = cpuset.EMPTY
    smt: bool = True  # False: one hardware thread of each core
    threads: int | None = None  # at most so many physical cores for each rank; None: no limit


DEFAULT = Policy()


class StreamsByRank(records.NamedTuple):
    """A set of streams (0 none, 1 stdout, 2 stderr, 3 both) for all local ranks, or for each.

    any() of it is True if at least one rank has a stream.
    """

    for_all: int = 0
    by_rank: tuple[tuple[str, int], ...] = ()  # ("9" or "r9", streams); the others have none

    def of(self, rank: int, local_rank: int) -> int:
        """Return the streams of one rank.

        >>> streams("3").of(23, 7), streams("0:3,10:1").of(26, 10)
        (3, 1)
        >>> streams("r23:2").of(23, 7), streams("r23:2").of(7, 7)
        (2, 0)
        """
        by_rank = dict(self.by_rank)
        return by_rank.get(f"r{rank}", by_rank.get(str(local_rank), self.for_all))


def nproc(text: str) -> int | str:
    text = text.strip()  # `wc -l` writes blanks before a number
    if text in ("auto", "gpu", "cpu") or text in KINDS:
        return text
    number = int(text) if reading.is_number(text) else 0
    if 0 < number <= MOST_LOCAL:
        return number
    wrong = f"{reading.excerpt(text)} is not a number of workers"
    if number:
        most = f"the {MOST_LOCAL} processes that a machine has by default"
        wrong = f"{text} workers are more than {most}"
    raise ValueError(f"{wrong}; use --nproc 2 for two, or --nproc auto, gpu or cpu")


def name(text: str) -> str | None:
    """Read the name of a run or a directory; None for an empty word, as of an unset variable."""
    return text or None


def path(text: str) -> str:
    """Read a path. Raises ValueError for an empty word, with which the flag would do nothing."""
    if not text:
        raise ValueError("an empty word, as an unset variable gives; use a path, or leave it out")
    return text


def whole(text: str) -> int:
    return _number(text, 0, "a whole number; use a number from 0")


def positive(text: str) -> int:
    return _number(text, 1, "a number above 0; use a number from 1")


def port(text: str) -> int:
    return _number(text, 0, "a port; use a number from 1 to 65535", most=MAX_PORT)


def _number(text: str, least: int, expected: str, most: int = 10**reading.MAX_DIGITS) -> int:
    number = text.strip()
    if reading.is_number(number) and least <= int(number) <= most:
        return int(number)
    raise ValueError(f"{reading.excerpt(text)} is not {expected}")


def nnodes(text: str) -> NodeCount:
    """Read a number of nodes: N, or torchrun's MIN:MAX.

    >>> nnodes("4"), nnodes("2:4")
    (NodeCount(least=4, most=4), NodeCount(least=2, most=4))
    """
    least, colon, most = text.partition(":")
    count = NodeCount(positive(least), positive(most if colon else least))
    if count.least > count.most:
        raise ValueError(f"{reading.excerpt(text)} runs backwards; use {most}:{least}")
    return count


def host(text: str) -> str:
    """Read the name or address of a host, without a port.

    >>> host("[::1]"), host(" node0 ")
    ('::1', 'node0')
    """
    name, number, is_whole = address(text)
    if not is_whole or number:
        meant = name or "a name or an address"
        raise ValueError(f"{reading.excerpt(text)} is not a host alone; use {meant}")
    return name


def master(text: str) -> str:
    """Read the host of --master-addr; the error for a port names --master-port."""
    name, number, is_whole = address(text)
    if name and (number or not is_whole):
        is_port = reading.is_number(number) and int(number) <= MAX_PORT
        port = f" --master-port {number}" if is_port else ""
        raise ValueError(
            f"{reading.excerpt(text)} is not a host alone; use --master-addr {name}{port}"
        )
    return host(text)


def endpoint(text: str) -> HostPort:
    """Read the HOST[:PORT] of --rdzv-endpoint.

    >>> endpoint("node0:29500"), endpoint("[::1]"), endpoint("localhost:0")
    (HostPort(host='node0', port=29500), HostPort(host='::1', port=29400), HostPort(host='localh...
    """
    name, number, is_whole = address(text)
    shown = f"[{name}]" if ":" in name else name
    if not is_whole or (":" in name and "[" not in text):
        meant = f"{shown}:{number}" if number else shown
        use = meant if name else "HOST:PORT"
        raise ValueError(f"{reading.excerpt(text)} is not HOST:PORT; use {use}")
    return HostPort(name, port(number or str(ENDPOINT_PORT)))


_NO_HOST = frozenset(" \t\r\n/@,;=?#&|\\\"'`$(){}<>*!^~[]")  # characters of no name or address


def address(text: str) -> tuple[str, str, bool]:
    """Split a text into host and port, each "" where there is none.

    Where the text has more, as an URL has, they are those that were meant, and the last value is
    False; so it is where there is no host.

    >>> address("node0:29500"), address("::1"), address("tcp://[::1]:29500")
    (('node0', '29500', True), ('::1', '', True), ('::1', '29500', False))
    """
    rest = text.strip()
    inside, bracket, after = rest[1:].partition("]") if rest[:1] == "[" else ("", "", "")
    if bracket and not is_ipv6(inside):
        rest = inside + after
    if "//" in rest:
        rest = rest.partition("//")[2]
    rest = rest.rpartition("@")[2].partition("/")[0]
    name, colon, number = rest.rpartition(":")
    if not colon or "]" in number or is_ipv6(rest):
        name, number = rest, ""
    if is_ipv6(name.strip("[]")):
        name = name.strip("[]")
    elif not _NO_HOST.isdisjoint(name) or ":" in name:  # as `hostname -I` writes all of a host
        name = ""
    return name, number, rest == text.strip() and name != ""


def is_ipv6(text: str) -> bool:
    """Whether a text is an IPv6 address, with an interface after it or without."""
    if ":" not in text:
        return False
    import _socket as socket

    try:
        socket.inet_pton(socket.AF_INET6, text.partition("%")[0])
    except OSError:
        return False
    return True


def seconds(text: str) -> float:
    """Read a time in seconds, which may have a fraction; 90s, 5m and 2h are 90, 300 and 7200."""
    unit = UNITS.get(text[-1:], 0)
    number = text[:-1] if unit else text
    if reading.is_number(number.replace(".", "", 1), MAX_DIGITS_OF_TIME):
        return float(number) * (unit or 1)
    raise ValueError(
        f"{reading.excerpt(text)} is not a time in seconds; use a number, as 30, 2.5 or 5m"
    )


def rendezvous(text: str) -> dict[str, str]:
    """Read torchrun's --rdzv-conf, also with quotes that a shell has left and unknown keys.

    >>> rendezvous("'join_timeout=900,is_host=1'")
    {'join_timeout': '900', 'is_host': '1'}
    """
    conf = {}
    for entry in filter(None, text.split(",")):
        name, _, value = (part.strip(" '\"") for part in entry.partition("="))
        if not name or not value:
            raise ValueError(
                f"{reading.excerpt(entry)} is not NAME=VALUE; use some of {', '.join(RENDEZVOUS)}, "
                "as in join_timeout=900"
            )
        if name == "is_host":
            if value.lower() not in (*YES, *NO):
                raise ValueError(f"is_host={reading.excerpt(value)} is not 1 or 0; use is_host=1")
            conf[name] = "1" if value.lower() in YES else ""
        else:
            conf[name] = f"{seconds(value):.15g}" if name in TIMES else value
    return conf


def find_unknown_keys(conf: Iterable[str]) -> list[str]:
    """The note about keys in --rdzv-conf that have no effect."""
    unknown = sorted({*conf} - {*RENDEZVOUS})
    known = ", ".join(RENDEZVOUS)
    names = f"--rdzv-conf {', '.join(unknown)}"
    return [f"{names}: such names have no effect; use some of {known}"] if unknown else []


def streams(text: str) -> StreamsByRank:
    if text in ("0", "1", "2", "3"):
        return StreamsByRank(for_all=int(text))
    by_rank = []
    for entry in text.split(","):
        rank, _, which = entry.partition(":")
        number = rank.removeprefix("r")
        if not (reading.is_number(number) and which in ("0", "1", "2", "3")):
            raise ValueError(
                f"{reading.excerpt(text)} is not a choice of streams; use 1 for stdout, 2 for "
                "stderr, 3 for both, or by local rank: 0:3,1:1, or by global rank: r9:3"
            )
        if which != "0":
            by_rank.append((rank[: -len(number)] + str(int(number)), int(which)))
    return StreamsByRank(by_rank=tuple(by_rank))


def bind(text: str) -> Policy:
    if text in NAMES:
        return Policy(text)
    if text.startswith("0x"):
        return Policy(LIST, tuple(map(cpuset.parse_mask, text.split(","))))
    if not text[:1].isdigit():
        raise ValueError(
            f"unknown value {reading.excerpt(text)}; use {', '.join(NAMES)}, or CPUs for each "
            "local rank, as 48-55:56-63"
        )
    return Policy(LIST, tuple(map(cpuset.parse, text.split(":"))))


def reserve(text: str) -> cpuset.CpuSet | str:
    """Read the CPUs of a list; FIRST_PER_L3 stays as it is."""
    try:
        return text if text == FIRST_PER_L3 else cpuset.parse(text)
    except ValueError as error:
        raise ValueError(f"{error}; or use {FIRST_PER_L3}") from None


def ranks(text: str) -> frozenset[int]:
    """Read a list of ranks, in the notation of lists of CPUs.

    >>> sorted(ranks("0,4-6"))
    [0, 4, 5, 6]
    """
    try:
        return cpuset.parse(text)  # ranks have the same notation as CPUs
    except ValueError:
        raise ValueError(
            f"{reading.excerpt(text)} is not a list of ranks; use numbers, as 0,4-7"
        ) from None


def statuses(text: str) -> frozenset[int]:
    """Read exit statuses separated by commas.

    >>> sorted(statuses("2,75"))
    [2, 75]
    """
    numbers = [number for number in text.split(",") if number]
    if all(reading.is_number(number) and int(number) < 256 for number in numbers):
        return frozenset(map(int, numbers))
    raise ValueError(
        f"{reading.excerpt(text)} is not a list of exit statuses; use numbers to 255, as 2,75"
    )


def modules(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"{reading.excerpt(name)} is not a module; use names, as torch,numpy")
    return names
