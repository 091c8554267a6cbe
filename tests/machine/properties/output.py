"""What is shown and kept of what workers wrote, and what the launch says itself."""

import re
import signal
from collections import Counter
from collections.abc import Iterator

from tests.machine.play import Host, Played
from tests.machine.properties import facts
from tests.machine.scripts import COUNT


def nothing_is_said_twice(played: Played) -> Iterator[facts.Verdict]:
    """Of what the launch says itself; but for who is waited for, and what each start may say."""
    if played.scenario.restarts or played.scenario.flag("--hang-timeout"):
        return
    for host in played.hosts:
        if len(host.launchers) > 1:
            continue  # each says its own
        said = (each for each in OURS.findall(host.err.text) if not AGAIN.search(each))
        lines = Counter(said)
        yield from (f"said {n} times: {line}" for line, n in lines.items() if n > 1)
        yield False


# Our words may come between the parts of another's line that no pipe takes at once.
OURS = re.compile(r"spawnlaunch: [^\n]*\n")
AGAIN = re.compile(
    "waiting for|trying again|continued it|cannot start: "
)  # the last words of a worker are shown once more
LINE = re.compile(r"^(?:\[[^]]+\] )?(r\d+'*) ([12]) (\d+)\.*$")


def all_output(played: Played) -> Iterator[facts.Verdict]:
    """What workers wrote is shown whole, once, in its order; or the status says that it was not."""
    if facts.is_any_killed(played):
        return
    for host in played.hosts:
        if host.node.is_down or not host.launchers or host.launcher.code is None:
            continue
        if any(p.code == -signal.SIGKILL for p in host.launchers):  # "return"
            continue
        torn = any(to in host.workers for _, to in facts.signalled(played))  # one died as it wrote
        shown: dict[tuple[str, int], list[int]] = {}
        for stream, text in ((1, host.out.text), (2, host.err.text)):
            for line in OURS.sub("", text).splitlines():
                found = LINE.match(line)
                if found:
                    shown.setdefault((found[1], stream), []).append(int(found[3]))
                elif stream == 1 and not torn:  # which the launcher does not write to
                    yield f"a line that nobody wrote: {line!r}"
        if len(host.workers) == len({p.environ["RANK"] for p in host.workers}):
            is_limited = played.scenario.flag("--timeout") is not None
            is_hasty = bool(played.scenario.pause) or is_limited or facts.is_told(played)
            is_hasty |= played.scenario.is_needed_refused
            yield from _compared(host, shown, is_hasty)


def _compared(
    host: Host, shown: dict[tuple[str, int], list[int]], is_hasty: bool
) -> Iterator[facts.Verdict]:
    for process in host.workers:
        player = process.player
        for stream in (1, 2):
            numbers = shown.get((player.name, stream), [])
            wanted = list(range(player.counts[stream]))
            cut = len(wanted)  # a signal may have come as it had written this one
            if numbers[cut : cut + 1] == [cut]:
                wanted.append(cut)
            if stream == 2:
                numbers = numbers[: len(wanted)]  # the report shows the last ones again
            is_said = "was not read: dropped" in host.err.text or host.launcher.code
            if not (is_hasty and is_said):
                words = f"{player.name} wrote {wanted} to {stream}, and shown are {numbers}"
                yield numbers != wanted and words


def all_of_it_is_kept(played: Played) -> Iterator[facts.Verdict]:
    """With --log-dir a file has what a worker wrote, whole, whoever reads; or it is said."""
    scenario = played.scenario
    if (
        scenario.flag("--log-dir") is None
        or facts.is_any_killed(played)
        or scenario.is_needed_refused
    ):
        return
    for host in played.hosts:
        if not host.launchers or host.launcher.code is None:
            continue
        for process in host.workers:
            for stream, name in ((1, "stdout.log"), (2, "stderr.log")):
                place = f"attempt_{process.environ[COUNT]}/{process.environ['RANK']}/{name}"
                text = _kept(host, place)
                found = [LINE.match(line) for line in text.splitlines()]
                own = process.player.name
                numbers = [int(each[3]) for each in found if each and each[1] == own]
                count = process.player.counts[stream]
                is_whole = numbers[:count] == [*range(count)]
                is_read = not (scenario.pause or facts.is_told(played))
                is_read &= "was not read: dropped" not in host.err.text
                is_said = f"{place}: No space left" in host.err.text or not is_read
                if scenario.disk is not None and is_said:
                    is_whole = numbers == [*range(len(numbers))]
                yield not is_whole and f"{place} has {numbers} of {count} lines"


def _kept(host: Host, place: str) -> str:
    """The file of that place below the directory of this run."""
    runs = host.node.files.find("/work/logs").entries
    return host.node.files.find(f"/work/logs/{next(iter(runs))}/{place}").content.decode()
