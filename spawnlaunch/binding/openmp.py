"""OpenMP variables that take a worker's CPUs away after it was bound.

With any of them, libgomp binds the thread that loads it, which is the main thread at `import
torch`, to one place, by default one hardware thread. DataLoader workers inherit that, and
GOMP_CPU_AFFINITY even leaves the mask it was given. (Measured with the libgomp of torch 2.13 on
Linux; the libgomp manual, "Environment Variables". OMP_PROC_BIND=false turns all three off.)
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


PROC_BIND, PLACES, GOMP = "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"

_BINDS = frozenset({"true", "close", "spread", "master", "primary"})
_OFF = "false"
_MENDED = f"unset it, or set {PROC_BIND}=false"


def hazards(environ: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each variable that would shrink the worker; none for a harmless environment."""
    proc_bind = environ.get(PROC_BIND, "").strip().lower()
    if proc_bind == _OFF:
        return ()
    lines = []
    if proc_bind.split(",")[0].strip() in _BINDS:
        lines.append(_line(PROC_BIND, environ, "binds the worker's main thread to one place"))
    if environ.get(PLACES, "").strip():
        lines.append(_line(PLACES, environ, "binds the worker's main thread to its first place"))
    if environ.get(GOMP, "").strip():
        lines.append(_line(GOMP, environ, "moves the worker to these CPUs, whatever its binding"))
    return tuple(lines)


def _line(name: str, environ: Mapping[str, str], effect: str) -> str:
    return (
        f"{name}={environ[name]} {effect}, often a single CPU, and DataLoader workers inherit it: "
        f"{_MENDED}"
    )
