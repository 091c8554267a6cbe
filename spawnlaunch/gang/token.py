"""The secret that launchers of one gang share, and where it is from.

Sources, in this order: --token-file PATH, SPAWNLAUNCH_TOKEN_FILE (such as a Kubernetes Secret), and
SPAWNLAUNCH_TOKEN, which srun hands on; an environment is readable by its user only (proc(5)).
"""

from __future__ import annotations

from spawnlaunch import errors, machine, records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FILE, TEXT = "SPAWNLAUNCH_TOKEN_FILE", "SPAWNLAUNCH_TOKEN"
LEAST = 16  # bytes
MOST = 4096
MAKE = "head -c 32 /dev/urandom | base64"


class Token(records.NamedTuple):
    """The secret; None where there is none."""

    secret: bytes | None
    source: str


def find(path: str | None, environ: Mapping[str, str]) -> Token:
    """The token of this launch. Raises UsageError where there is one that cannot be used."""
    source = "--token-file" if path else FILE
    path = path or environ.get(FILE)
    if path:
        try:
            text = machine.content(path, MOST + 1).strip()
            return Token(_checked(text, f"{source} {path}"), source)
        except OSError as error:
            raise errors.UsageError(
                f"{source} {path}: {error.strerror}; {MAKE} > {path} makes one, "
                "and all nodes need the same"
            ) from error
    if environ.get(TEXT):
        return Token(_checked(environ[TEXT].strip().encode(), TEXT), TEXT)
    return Token(None, "")


def _checked(secret: bytes, what: str) -> bytes:
    if not LEAST <= len(secret) <= MOST:
        raise errors.UsageError(
            f"{what} has {len(secret)} bytes, and must have {LEAST} to {MOST}; {MAKE} makes one"
        )
    return secret
