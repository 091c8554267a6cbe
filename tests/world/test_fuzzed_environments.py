"""Any environment gives a world that makes sense, or one line that says what to type."""

import json
import tempfile

from hypothesis import given

from spawnlaunch.base.errors import UsageError
from tests.support.answers import bounded, plain_line
from tests.support.examples import examples, nightly
from tests.world.any_environment import Case, cases, made
from tests.world.resolving import of_job, resolve


def has_a_world_or_an_advice(case: Case) -> None:
    with tempfile.TemporaryDirectory() as directory, bounded():
        try:
            found = resolve(case.words, made(case, directory))
        except UsageError as error:
            line = str(error)
            plain_line(line)
            assert any(
                word in line for word in ("use ", "run ", "unset ", "export ", "leave ", "write ")
            ), line
            return
    me = found.world
    assert me.mode in ("task", "node", "local")
    assert 0 <= me.rank < me.world_size
    assert 0 <= me.local_rank < me.local_world_size <= me.world_size
    assert me.nnodes is None or me.nnodes <= me.world_size
    assert None in (me.node_rank, me.nnodes) or 0 <= me.node_rank < me.nnodes
    assert me.master_addr
    is_free = me.mode == "local" or found.gathering is not None
    assert 0 < me.master_port < 65536 or (is_free and me.master_port == 0)
    of_roles = {"role_rank", "role_world_size"}  # known once the launchers have met
    told = {name: value for name, value in me._asdict().items() if name not in of_roles}
    assert told == {name: fact.value for name, fact in found.sources.items()}
    json.dumps([*found.sources.values(), *of_job(found)])


test_any_environment_has_a_world_or_an_advice = examples(150, 1500)(
    given(cases())(has_a_world_or_an_advice)
)
test_thousands_of_environments = nightly(given(cases())(has_a_world_or_an_advice))
