"""spawnlaunch: start one pinned PyTorch worker per device."""

__version__ = "0.2.0"
