"""All subjects, by name."""

from tests.fuzz.cli import CLI
from tests.fuzz.engine import Subject
from tests.fuzz.environments import ENVIRONMENTS
from tests.fuzz.errorfiles import ERRORFILES
from tests.fuzz.hub import HUB
from tests.fuzz.lists import LISTS
from tests.fuzz.trees import TREES
from tests.fuzz.wire import WIRE

SUBJECTS: dict[str, Subject] = {
    "cli": CLI,
    "environments": ENVIRONMENTS,
    "trees": TREES,
    "lists": LISTS,
    "errorfiles": ERRORFILES,
    "wire": WIRE,
    "hub": HUB,
}
