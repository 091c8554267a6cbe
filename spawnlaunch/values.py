"""The values of flags, from their text; what cannot be one is told what to type instead."""

from argparse import ArgumentTypeError

from spawnlaunch.binding import policy
from spawnlaunch.node import cpuset
from spawnlaunch.reading import MAX_DIGITS, excerpt, is_number
from spawnlaunch.request import MOST_LOCAL, Endpoint
from spawnlaunch.streams import StreamsByRank

ENDPOINT_PORT = 29400  # torchrun's, of a --rdzv-endpoint that names none
MAX_PORT = 65535
MAX_DIGITS_OF_TIME = 30  # longer than any clock runs, and far below a float's infinity


def nproc(text: str) -> int | str:
    if text in ("auto", "gpu", "cpu"):
        return text
    if is_number(text) and int(text) > MOST_LOCAL:
        raise ArgumentTypeError(
            f"{text} workers are more than the {MOST_LOCAL} processes that a machine has by "
            "default; type --nproc 2 for two, or --nproc auto, gpu or cpu"
        )
    return _number(
        text, 1, "a number of workers; type --nproc 2 for two, or --nproc auto, gpu or cpu"
    )


def whole(text: str) -> int:
    return _number(text, 0, "a whole number; type a number from 0")


def positive(text: str) -> int:
    return _number(text, 1, "a number above 0; type a number from 1")


def port(text: str) -> int:
    return _number(text, 0, "a port; type a number from 1 to 65535", most=MAX_PORT)


def _number(text: str, least: int, what: str, most: int = 10**MAX_DIGITS) -> int:
    if is_number(text) and least <= int(text) <= most:
        return int(text)
    raise ArgumentTypeError(f"{excerpt(text)} is not {what}")


def nnodes(text: str) -> int:
    """N, or torchrun's MIN:MAX where both are equal: membership does not change while we run."""
    least, colon, most = text.partition(":")
    if colon and least != most:
        raise ArgumentTypeError(
            f"{excerpt(text)} asks for a number of nodes that changes, which there is not; type "
            "one number"
        )
    return positive(least)


def endpoint(text: str) -> Endpoint:
    """
    >>> endpoint("node0:29500"), endpoint("[::1]"), endpoint("localhost:0")
    (Endpoint(host='node0', port=29500), Endpoint(host='::1', port=29400), Endpoint(host='localh...
    """
    host, colon, number = text.rpartition(":")
    if not colon or number.endswith("]"):
        host, number = text, str(ENDPOINT_PORT)
    if not host.strip("[]"):
        raise ArgumentTypeError(f"{excerpt(text)} names no host; type HOST:PORT")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ArgumentTypeError(f"{text!r} has several colons; type [{text}] or [HOST]:PORT")
    return Endpoint(host.strip("[]"), port(number))


def backend(text: str) -> str:
    if text in ("static", "c10d"):
        return text
    raise ArgumentTypeError(
        f"{excerpt(text)} is not served; leave the flag out, or type static or c10d"
    )


def seconds(text: str) -> float:
    """With a fraction, or without."""
    if is_number(text.replace(".", "", 1), MAX_DIGITS_OF_TIME):
        return float(text)
    raise ArgumentTypeError(
        f"{excerpt(text)} is not a time in seconds; type a number, as 30 or 2.5"
    )


def streams(text: str) -> StreamsByRank:
    try:
        return StreamsByRank.parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def bind(text: str) -> policy.Policy:
    try:
        return policy.parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def reserve(text: str) -> str:
    """A CPU list, or first-per-l3; checked here, and taken by Policy.with_reserve."""
    try:
        policy.DEFAULT.with_reserve(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{error}; or type {policy.FIRST_PER_L3}") from None
    return text


def cpus(text: str) -> cpuset.CpuSet:
    try:
        return cpuset.parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def ranks(text: str) -> frozenset[int]:
    """
    >>> sorted(ranks("0,4-6"))
    [0, 4, 5, 6]
    """
    try:
        return cpuset.parse(text)  # the same notation
    except ValueError:
        raise ArgumentTypeError(
            f"{excerpt(text)} is no list of ranks; type numbers: 0,4-7"
        ) from None


def statuses(text: str) -> frozenset[int]:
    """
    >>> sorted(statuses("2,75"))
    [2, 75]
    """
    numbers = [number for number in text.split(",") if number]
    if all(is_number(number) and int(number) < 256 for number in numbers):
        return frozenset(map(int, numbers))
    raise ArgumentTypeError(
        f"{excerpt(text)} is no list of exit statuses; type numbers to 255: 2,75"
    )


def modules(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ArgumentTypeError(f"{excerpt(name)} is no module; type names such as torch,numpy")
    return names
