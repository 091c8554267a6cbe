from spawnlaunch.api import CurrentWorld as CurrentWorld
from spawnlaunch.api import LaunchError as LaunchError
from spawnlaunch.api import UsageError as UsageError
from spawnlaunch.api import WorkerError as WorkerError
from spawnlaunch.api import current_world as current_world
from spawnlaunch.api import explain_launch as explain_launch
from spawnlaunch.api import launch as launch
from spawnlaunch.base.cpuset import node_cpus as node_cpus

__version__: str
