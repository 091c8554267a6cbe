"""The directory for files that need not outlive the launch: the workers' error files.

Whoever starts the workers makes it and removes it; if that is a guard that was killed, the launcher
removes it.
"""

import os
from collections.abc import Mapping

from spawnlaunch.errors import UsageError


def path(environ: Mapping[str, str]) -> str:
    """A name that no other launch on this machine has, nor in a container that shares /tmp."""
    name = f"spawnlaunch-{os.getpid()}-{os.urandom(4).hex()}"
    return os.path.join(environ.get("TMPDIR") or "/tmp", name)


def make(directory: str) -> None:
    """Raises UsageError where nothing can be written."""
    try:
        os.mkdir(directory, mode=0o700)
    except OSError as error:
        raise UsageError(
            f"cannot make the directory {directory}: {error.strerror}; set TMPDIR to a place that "
            "can be written"
        ) from None


def remove(directory: str) -> None:
    """Remove the directory, if it is there, with whatever the workers left in it."""
    try:
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                remove(entry.path)
            else:
                os.unlink(entry.path)
        os.rmdir(directory)
    except OSError:
        pass  # gone already, or somebody has made it unremovable
