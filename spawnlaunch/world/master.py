"""Choose the address and the port of rank 0: MASTER_ADDR and MASTER_PORT.

The launchers cannot ask each other yet: so each of them computes both, and all come to the same
result. In this module the manager in the evidence is the authority: its answers decide.
"""

from __future__ import annotations

from spawnlaunch.base import errors, reading
from spawnlaunch.cli import values
from spawnlaunch.world import identity

LOOPBACK = "127.0.0.1"
STATIC_PORT = 29500  # torchrun's --master-port, where nodes are started by hand
FREE = 0  # "any free port"; only possible where one launcher starts all workers

# Both lie below the kernel's default ephemeral range, 32768-60999. A launcher that can choose a
# port avoids the computed ones: a job whose computed port is in use cannot have another one.
CHOSEN_PORTS = range(29_501, 30_000)  # above torchrun's, below those of Kubernetes' services

# One port for each pair of job and step. Consecutive steps are neighbours, consecutive jobs lie
# STRIDE apart, so steps of two jobs meet only where one of them has over a hundred steps or 88
# jobs lie between them. The number of ports is a prime: 8999 jobs in a row have 8999 ports.
COMPUTED_PORTS = range(20_000, 28_999)
STRIDE = 101


def find_host(evidence: identity.Evidence, facts: identity.Facts) -> identity.Fact | None:
    """The host of rank 0, as far as it is known without a flag."""
    manager, mode = evidence.manager, facts["mode"].value
    if mode == identity.LOCAL:
        return identity.Fact(LOOPBACK, "local mode")
    exported = manager.rank_0_host() if mode == identity.TASK else manager.node_0_host()
    hosts = manager.hosts()
    listed = identity.Fact(hosts.value[0], f"first host of {hosts.source}") if hosts else None
    here = identity.Fact(evidence.hostname, "this host: all ranks are on it")
    return identity.first([exported, listed, here if identity.is_single_node(facts) else None])


def choose_address(
    evidence: identity.Evidence,
    facts: identity.Facts,
    host: identity.Fact | None,
    inherited: identity.Fact | None,
) -> identity.Fact:
    """Choose MASTER_ADDR; `inherited` is the inherited address, `host` the host of rank 0.

    Raises UsageError where nothing names the host of rank 0, or rank 0 runs on another host.
    """
    request, mode, derived = evidence.request, facts["mode"].value, host
    if host is not None and request.master_suffix and mode != identity.LOCAL:
        name = with_suffix(host.value, request.master_suffix)
        derived = identity.Fact(name, f"{host.source}, --master-suffix")
    by_flag = evidence.typed("--master-addr", request.master_addr)
    if request.rdzv_endpoint:
        by_flag = _agreed(by_flag, evidence.typed("--rdzv-endpoint", request.rdzv_endpoint.host))
    # On several nodes each launcher sends its --local-addr to the hub.
    has_local = mode != identity.TASK and identity.is_single_node(facts)
    local = evidence.typed("--local-addr", request.local_addr) if has_local else None
    by_flags = [by_flag, local]
    if request.rdzv_backend == "c10d" and request.master_addr is None:
        by_flags.reverse()  # launchers meet at the endpoint; here all are on one node
    fact = identity.first([*by_flags, evidence.manager.master_addr(), inherited, derived])
    if fact is None:
        raise errors.UsageError(
            f"{_why_no_host(mode, evidence)}; use --master-addr HOST, the same everywhere"
        )
    # A list of several addresses stays as it is in local mode: host.check_address replaces it.
    is_list = mode == identity.LOCAL and len(str(fact.value).split()) > 1
    if fact.source in evidence.environ and not is_list:
        try:
            fact = fact._replace(value=values.master(fact.value))
        except ValueError as error:
            raise errors.UsageError(f"{fact.source}: {error}") from None
    if host and derived and fact.source == derived.source and facts["rank"].value == 0:
        mine = evidence.manager.host_name()
        if mine is not None and mine.value.partition(".")[0] != host.value.partition(".")[0]:
            raise errors.UsageError(
                f"rank 0 is on {mine.value} ({mine.source}), and the others look for it on "
                f"{host.value} ({host.source}); use --master-addr {mine.value}"
            )
    return fact


def with_suffix(host: str, suffix: str) -> str:
    """The host's name in a site's high-speed network.

    >>> with_suffix("jwb0001", "i"), with_suffix("jwb0001.juwels", "i")
    ('jwb0001i', 'jwb0001i.juwels')
    >>> with_suffix("x1000c0s0b0n0", ".hsn.cm.example")
    'x1000c0s0b0n0.hsn.cm.example'
    """
    name, dot, domain = host.partition(".")
    return name + suffix if suffix.startswith(".") else name + suffix + dot + domain


def choose_port(
    evidence: identity.Evidence,
    facts: identity.Facts,
    job: identity.Fact | None,
    inherited: identity.Fact | None,
) -> identity.Fact:
    """Choose MASTER_PORT, or FREE. Raises UsageError where nothing makes it equal on all nodes.

    `job` is the authority's name of this launch; `inherited` is the inherited port.
    """
    request, manager, mode = evidence.request, evidence.manager, facts["mode"].value
    by_flag = evidence.typed("--master-port", request.master_port)
    if request.rdzv_endpoint:
        by_flag = _agreed(by_flag, evidence.typed("--rdzv-endpoint", request.rdzv_endpoint.port))
    derived: identity.Fact | None = None
    if mode == identity.LOCAL:
        derived = identity.Fact(FREE, "local mode")
    elif job:
        derived = identity.Fact(port_of(job.value), f"computed from {job.source}={job.value}")
    known = (by_flag, manager.master_port(), inherited, manager.reserved_port(), derived)
    fact = identity.first(known)
    if fact is None:
        if mode == identity.TASK and request.master_addr is None:
            raise errors.UsageError(
                f"{manager.name} exports nothing that tells this launch from another; use "
                "--master-port N, the same for all ranks"
            )
        why = "torchrun's default, as --master-addr was given by hand"
        fact = identity.Fact(STATIC_PORT, why)
    is_hubs = mode == identity.NODE and not request.no_gang and fact.source == "--master-port"
    if fact.value == FREE and mode != identity.LOCAL and not is_hubs:
        raise errors.UsageError(
            f"{fact.source} asks for any free port, but no node can tell the others which; "
            "use --master-port N, the same everywhere"
        )
    return fact


def port_of(job: str) -> int:
    """Compute a launch's port from its job's name: the same port in all processes of the launch.

    Other launches have other ports. A job's name is `JOB.STEP` of Slurm or `JOB.SERVER` of PBS.

    >>> port_of("1000.0"), port_of("1000.1"), port_of("1001.0")
    (22011, 22012, 22112)
    """
    number, _, step = job.partition(".")
    if not reading.is_number(number):
        return COMPUTED_PORTS[_hash(job) % len(COMPUTED_PORTS)]
    step_number = int(step) if reading.is_number(step) else _hash(step)
    return COMPUTED_PORTS[(int(number) * STRIDE + step_number) % len(COMPUTED_PORTS)]


def _hash(text: str) -> int:
    """Return a number that is the same in every process, unlike ``hash``; 0 for an empty text."""
    return int.from_bytes(text.encode(errors="surrogateescape"), "little")


def _why_no_host(mode: str, evidence: identity.Evidence) -> str:
    """Return why no host of rank 0 is known; an inherited MASTER_ADDR was not kept."""
    inherited_address = evidence.environ.get("MASTER_ADDR", "").strip()
    other = "several addresses, this machine's own, or another launcher's"
    others = f", and MASTER_ADDR={inherited_address} is {other}" if inherited_address else ""
    if evidence.manager.kind == identity.NONE:
        return f"nothing here names the host of node rank 0{others}"
    question = "rank_0_host" if mode == identity.TASK else "node_0_host"
    return evidence.manager.why_silent(question) + others


def _agreed(
    by_flag: identity.Fact | None, by_endpoint: identity.Fact | None
) -> identity.Fact | None:
    """Return the value that two flags agree on. Raises UsageError where they differ."""
    if by_flag and by_endpoint and by_flag.value != by_endpoint.value:
        raise errors.UsageError(
            f"{by_flag.source} {by_flag.value}, but {by_endpoint.source} has {by_endpoint.value}; "
            "leave one of the two out"
        )
    return by_flag or by_endpoint
