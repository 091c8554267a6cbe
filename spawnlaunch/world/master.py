"""Where rank 0 listens: MASTER_ADDR, which every node can reach, and MASTER_PORT, the same on all.

Nobody can ask anybody here: both are computed by every launcher by itself.
"""

from zlib import crc32

from spawnlaunch.errors import UsageError
from spawnlaunch.reading import is_number
from spawnlaunch.request import Request
from spawnlaunch.world.facts import Environ, Fact, first
from spawnlaunch.world.manager import Manager
from spawnlaunch.world.place import LOCAL, TASK, Facts
from spawnlaunch.world.ports import RANGE

LOOPBACK = "127.0.0.1"
STATIC_PORT = 29500  # torchrun's --master-port, where nodes are started by hand
FREE = 0  # "any free port"; only possible where one launcher starts all workers

# One port for each pair of job and step. Consecutive steps are neighbours, consecutive jobs lie
# STRIDE apart, so steps of two jobs meet only where one of them has over a hundred steps or 88
# jobs lie between them. The number of ports is a prime, so that no stride closes a short circle.
PORTS = 8999
STRIDE = 101


def address(
    request: Request,
    mode: str,
    manager: Manager | None,
    host: Fact | None,
    kept: Fact | None,
    facts: Facts,
    environ: Environ,
) -> Fact:
    """MASTER_ADDR. Raises UsageError where nothing names the host of rank 0.

    `kept` is the inherited one, `manager` the one whose word counts.
    """
    derived = host
    if host is not None and request.master_suffix and mode != LOCAL:
        derived = Fact(
            with_suffix(host.value, request.master_suffix), f"{host.source}, --master-suffix"
        )
    endpoint = request.rdzv_endpoint
    fact = first(
        [
            _flags("--master-addr", request.master_addr, endpoint and endpoint.host),
            manager.answer("master_addr", environ) if manager else None,
            kept,
            derived,
        ]
    )
    if fact is None:
        raise UsageError(_unknown_host(mode, manager))
    if host and derived and fact.source == derived.source and facts["rank"].value == 0:
        _check_host(manager, host, environ)
    return fact


def _check_host(manager: Manager | None, host: Fact, environ: Environ) -> None:
    """Raise UsageError where rank 0 is not on the host that all derive; only rank 0 can know."""
    mine = manager.answer("own_host", environ) if manager else None
    if mine is not None and mine.value.partition(".")[0] != host.value.partition(".")[0]:
        raise UsageError(
            f"rank 0 is on {mine.value} ({mine.source}), and the others look for it on "
            f"{host.value} ({host.source}); type --master-addr {mine.value}"
        )


def host(
    mode: str, manager: Manager | None, facts: Facts, environ: Environ, hostname: str
) -> Fact | None:
    """The host of rank 0, as far as it is known without a flag."""
    if mode == LOCAL:
        return Fact(LOOPBACK, "local mode")
    question = "rank_0_host" if mode == TASK else "node_0_host"
    hosts = manager.answer("hosts", environ) if manager else None
    alone = facts["world_size"].value == facts["local_world_size"].value
    return first(
        [
            manager.answer(question, environ) if manager else None,
            Fact(hosts.value[0], f"first host of {hosts.source}") if hosts else None,
            Fact(hostname, "this host: all ranks are on it") if alone else None,
        ]
    )


def _unknown_host(mode: str, manager: Manager | None) -> str:
    question = "rank_0_host" if mode == TASK else "node_0_host"
    if manager is None:
        why = "nothing here names the host of node rank 0"
    else:
        why = manager.silent.get(question, f"{manager.name} does not export the host of rank 0")
    return f"{why}; type --master-addr HOST, the same everywhere"


def with_suffix(host: str, suffix: str) -> str:
    """The host's name in a site's high-speed network.

    >>> with_suffix("jwb0001", "i"), with_suffix("jwb0001.juwels", "i")
    ('jwb0001i', 'jwb0001i.juwels')
    >>> with_suffix("x1000c0s0b0n0", ".hsn.cm.example")
    'x1000c0s0b0n0.hsn.cm.example'
    """
    name, dot, domain = host.partition(".")
    if suffix.startswith("."):
        return name + suffix
    return name + suffix + dot + domain


def port(
    request: Request,
    mode: str,
    manager: Manager | None,
    kept: Fact | None,
    environ: Environ,
) -> Fact:
    """MASTER_PORT, or FREE. Raises UsageError where nothing makes it the same on all nodes."""
    endpoint = request.rdzv_endpoint
    fact = first(
        [
            _flags("--master-port", request.master_port, endpoint and endpoint.port),
            manager.answer("master_port", environ) if manager else None,
            kept,
            manager.answer("reserved_port", environ) if manager else None,
            Fact(FREE, "local mode") if mode == LOCAL else None,
            _from_job(manager, environ),
        ]
    )
    if fact is None:
        fact = _by_hand(request, mode, manager)
    if fact.value == FREE and mode != LOCAL:
        raise UsageError(
            f"{fact.source} asks for any free port, but no node can tell the others which; "
            "type --master-port N, the same everywhere"
        )
    return fact


def _by_hand(request: Request, mode: str, manager: Manager | None) -> Fact:
    if mode == TASK and manager is not None and request.master_addr is None:
        raise UsageError(
            f"{manager.name} exports nothing that tells this launch from another; "
            "type --master-port N, the same for all ranks"
        )
    return Fact(STATIC_PORT, "torchrun's default, as --master-addr was given by hand")


def _from_job(manager: Manager | None, environ: Environ) -> Fact | None:
    """A port that all processes of one launch compute alike, and other launches otherwise."""
    job = manager.answer("job", environ) if manager else None
    return Fact(port_of(job.value), f"computed from {job.source}={job.value}") if job else None


def port_of(job: str) -> int:
    """A port below the kernel's default ephemeral range for a job's name.

    Such as `JOB.STEP` of Slurm, `JOB.SERVER` of PBS.

    >>> port_of("1000.0"), port_of("1000.1"), port_of("1001.0")
    (22011, 22012, 22112)
    """
    number, _, step = job.partition(".")
    if not is_number(number):
        return RANGE.start + _hash(job) % PORTS
    step_number = int(step) if is_number(step) else _hash(step)
    return RANGE.start + (int(number) * STRIDE + step_number) % PORTS


def _hash(text: str) -> int:
    """The same in every process, which ``hash`` is not; 0 for no text."""
    return crc32(text.encode(errors="surrogateescape"))


def _flags(name: str, value: object, of_endpoint: object) -> Fact | None:
    """One of two flags that say the same. Raises UsageError where they do not."""
    if value is None:
        return None if of_endpoint is None else Fact(of_endpoint, "--rdzv-endpoint")
    if of_endpoint not in (None, value):
        raise UsageError(
            f"{name} {value}, but --rdzv-endpoint says {of_endpoint}; leave one of the two out"
        )
    return Fact(value, name)
