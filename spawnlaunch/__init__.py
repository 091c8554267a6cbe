"""spawnlaunch: start one pinned PyTorch worker per device."""

__version__ = "0.3.0"

# What programs may import from this package, and where it is. Type checkers read __init__.pyi.
_HOMES = {
    "CurrentWorld": "spawnlaunch.api",
    "LaunchError": "spawnlaunch.api",
    "UsageError": "spawnlaunch.api",
    "WorkerError": "spawnlaunch.api",
    "current_world": "spawnlaunch.api",
    "explain_launch": "spawnlaunch.api",
    "launch": "spawnlaunch.api",
    "node_cpus": "spawnlaunch.base.cpuset",
}
__all__ = tuple(_HOMES)


def __getattr__(name: str) -> object:
    """Import a name when it is used for the first time: no launch needs any of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
