"""What a resource manager is to us: how it is recognised, and what it answers.

Every manager is one small file with a MANAGER in it: a table from questions to readers, in the
order in which they are asked. A question that is not in its table is one that it cannot answer.
"""

from __future__ import annotations

from spawnlaunch.records import NamedTuple
from spawnlaunch.world.facts import Environ, Fact, Reader, first

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

# Kinds of managers, by what they have started where the launcher finds itself:
TASKS = "tasks"  # one process per rank (or, with --nproc, one launcher per node)
NODES = "nodes"  # one launcher per node or pod, never one process per rank
HOSTS = "hosts"  # nothing: there is a list of hosts, and this is a process on one of them

# The line that starts a command as often as given on each node: (n, environment, command).
Starter: TypeAlias = "Callable[[int, Environ, str], str]"


class Manager(NamedTuple):
    """A resource manager.

    Questions: rank, world_size, local_rank, local_world_size, node_rank, nnodes, hosts (all of
    them, in node rank's order), rank_0_host, node_0_host, own_host (of this process, as the two
    call it), job (text that is the same in every process of a launch and in no other launch),
    master_addr, master_port, reserved_port (for users who name none), nproc, gpus_per_node and
    cpus_per_node (where all nodes have as many).
    """

    name: str
    kind: str
    needs: tuple[str, ...]  # variables that must all be set for the manager to be there
    table: dict[str, tuple[Reader, ...]]
    unless: Callable[[Environ], bool] = lambda _: False  # `needs` are set, yet it is not there
    silent: Mapping[str, str] = {}  # why it has no answer to a question, for the error's text
    starter: Starter = lambda _n, _environ, command: command
    gives_ranks: bool = False  # RANK and its like are its own, and left by nobody

    def is_present(self, environ: Environ) -> bool:
        """Whether this manager started the process that has this environment."""
        return all(environ.get(name) for name in self.needs) and not self.unless(environ)

    def why_silent(self, question: str) -> str:
        """The beginning of an error about a question that has no answer."""
        default = f"{self.name} exports no {question.replace('_', ' ')} here"
        return self.silent.get(question, default)

    def answer(self, question: str, environ: Environ) -> Fact | None:
        """The first answer in the table's order, or None where the manager exports none."""
        return first(reader(environ) for reader in self.table.get(question, ()))
