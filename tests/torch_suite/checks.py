"""What a case asks of what has come: each is a function of the outcomes by node."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from tests.dropin.launches import Seen
from tests.support.processes import processes_with
from tests.torch_suite.running import Called, Check

Nodes = Sequence[Any]


def workers(nodes: Sequence[Seen], attempt: str = "") -> dict[int, dict[str, Any]]:
    """By rank, what the workers reported; of one attempt, or of the last of each rank."""
    found = {}
    for node in nodes:
        for key in sorted(node.workers):
            restart, _, rank = key.partition(".")
            if attempt in ("", restart):
                found[int(rank)] = node.workers[key]
    return found


def ended_well(nodes: Nodes) -> bool:
    return all(node.status == 0 for node in nodes)


def failed(nodes: Nodes) -> bool:
    return all(node.status != 0 for node in nodes)


def refused(nodes: Nodes) -> bool:
    """Nothing was started."""
    return failed(nodes) and not workers(nodes)


def marked(name: str) -> dict[str, str]:
    """A variable for a launch, by which its processes are found."""
    return {"SUITE_MARK": f"suite-{os.getpid()}-{name}"}


def nothing_runs(nodes: Nodes) -> bool:
    """Each worker was marked, and none of them is left."""
    marks = {worker["environ"]["SUITE_MARK"] for worker in workers(nodes).values()}
    return bool(marks) and not any(map(processes_with, marks))


def ranks(count: int) -> Check:
    """So many ran, and all ended well."""
    return lambda nodes: ended_well(nodes) and [*sorted(workers(nodes))] == [*range(count)]


def attempts(*numbers: str) -> Check:
    """Workers were started in these attempts, and in no other."""
    return lambda nodes: {key.partition(".")[0] for n in nodes for key in n.workers} == {*numbers}


def has(**variables: str) -> Check:
    """Each worker has these variables, with these values."""
    return lambda nodes: all(
        worker["environ"].get(name) == value
        for worker in workers(nodes).values()
        for name, value in variables.items()
    )


def has_all(*names: str) -> Check:
    return lambda nodes: all({*names} <= {*w["environ"]} for w in workers(nodes).values())


def has_none(*names: str) -> Check:
    return lambda nodes: not any({*names} & {*w["environ"]} for w in workers(nodes).values())


def says(pattern: str) -> Check:
    """A line on the launchers' streams, and nothing else in it."""
    return lambda nodes: any(
        re.search(pattern, stream, re.MULTILINE)
        for node in nodes
        for stream in (node.stdout, getattr(node, "stderr", ""))
    )


def argument_is_local_rank(nodes: Nodes) -> bool:
    return all(
        worker["argv"][1:] == [f"--local-rank={worker['environ']['LOCAL_RANK']}"]
        for worker in workers(nodes).values()
    )


def left(suffix: str) -> Check:
    """Each worker has written such a file."""
    return lambda nodes: all(suffix in worker["left"] for worker in workers(nodes).values())


def error_is_recorded(nodes: Nodes) -> bool:
    """In the file that the caller named, in the form that @record writes."""
    message = nodes[0].error["message"]
    return (
        "bad luck" in message["message"]
        and "bad luck" in message["extraInfo"]["py_callstack"]
        and int(message["extraInfo"]["timestamp"]) > 0
    )


def no_error_file(nodes: Nodes) -> bool:
    return nodes[0].error is None


def in_file(rank: int, stream: str, *lines: str) -> Check:
    """The file of a rank's stream has these lines; without any: it is not there, or empty."""

    def check(nodes: Nodes) -> bool:
        text = "".join(text for name, text in nodes[0].files.items()
                       if name.endswith(f"/{rank}/{stream}.log"))  # fmt: skip
        found = {*text.splitlines()}
        return {*lines} <= found if lines else not found

    return check


def has_all_lines(pattern: str, count: int) -> Check:
    """The stream or the file of rank 0 has each number below `count`, once."""

    def check(nodes: Nodes) -> bool:
        text = "".join(text for name, text in nodes[0].files.items() if "/0/stdout.log" in name)
        return sorted(map(int, re.findall(pattern, text, re.MULTILINE))) == [*range(count)]

    return check


def has_lines_of_all(workers: int, count: int) -> Check:
    """Each of the workers' lines is on stdout with its rank in front of it."""
    return lambda nodes: (
        {*re.findall(r"\[default(\d+)\]:line (\d+)$", nodes[0].stdout, re.MULTILINE)}
        == {(str(w), str(n)) for w in range(workers) for n in range(count)}
    )


def returned(*values: Any) -> Check:
    """These values, of all nodes together, in any order."""

    def check(nodes: Sequence[Called]) -> bool:
        found = [value for node in nodes for value in node.said.get("values", [])]
        return sorted(map(repr, found)) == sorted(map(repr, values))

    return check


def first_failure(exitcode: int, message: str = "") -> Check:
    return lambda nodes: all(
        node.said.get("exitcode") == exitcode and message in node.said["message"] for node in nodes
    )


def roles(**sizes: int) -> Check:
    """Ranks count up through all nodes, and role ranks through each role; sizes are right."""

    def check(nodes: Nodes) -> bool:
        found: dict[str, list[int]] = {}
        for node in nodes:
            environs = [worker["environ"] for worker in workers([node]).values()]
            for name in ("RANK", "ROLE_RANK"):
                numbers = sorted(int(each[name]) for each in environs)
                if numbers != [*range(numbers[0], numbers[0] + len(numbers))]:
                    return False
            for each in environs:
                found.setdefault(each["ROLE_NAME"], []).append(int(each["ROLE_RANK"]))
                if int(each["ROLE_WORLD_SIZE"]) != sizes[each["ROLE_NAME"]]:
                    return False
        return {role: sorted(found[role]) for role in found} == {
            role: [*range(size)] for role, size in sizes.items()
        }

    return check
