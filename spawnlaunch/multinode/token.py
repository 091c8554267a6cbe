"""The secret that the launchers of one gang share, and its sources.

Sources, in this order: --token-file PATH, SPAWNLAUNCH_TOKEN_FILE (such as a Kubernetes Secret), and
SPAWNLAUNCH_TOKEN, which srun hands on; an environment is readable by its user only (proc(5)).
"""

from __future__ import annotations

from spawnlaunch.base import errors, machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FILE, TEXT = "SPAWNLAUNCH_TOKEN_FILE", "SPAWNLAUNCH_TOKEN"
LEAST = 16  # bytes
MOST = 4096
MAKE = "head -c 32 /dev/urandom | base64"


def find(path: str | None, environ: Mapping[str, str]) -> bytes | None:
    """Return the secret of this launch; None where there is none.

    Raises UsageError for a secret that cannot be used. An empty value, as an unset variable of a
    shell gives, cannot: without a secret anyone with the run's name would be let in.
    """
    source = "--token-file" if path else FILE
    path = path or environ.get(FILE)
    if path == "":
        raise errors.UsageError(
            f"{FILE} is empty, so no secret would be asked for; set it to a file, or unset {FILE}"
        )
    if path:
        try:
            return _checked(machine.content(path, MOST + 1).strip(), f"{source} {path}")
        except OSError as error:
            raise errors.UsageError(
                f"{source} {path}: {error.strerror}; {MAKE} > {path} makes one, "
                "and all nodes need the same"
            ) from error
    text = environ.get(TEXT)
    return None if text is None else _checked(text.strip().encode(), TEXT)


def _checked(secret: bytes, what: str) -> bytes:
    if not LEAST <= len(secret) <= MOST:
        raise errors.UsageError(
            f"{what} has {len(secret)} bytes, and must have {LEAST} to {MOST}; {MAKE} makes one"
        )
    return secret
