"""This machine as the checks see it: which Python, which devices, what is missing, how to run."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
PACKAGES = ("torch", "numpy", "psutil")
LIMIT_S = 600.0  # of one command

PROBE = """
import importlib.util, json, sys
found = {"python": sys.version.split()[0], "packages": {}}
for name in ("torch", "numpy", "psutil", "pynvml"):
    if importlib.util.find_spec(name):
        module = __import__(name)
        found["packages"][name] = getattr(module, "__version__", "?")
if "torch" in found["packages"]:
    import torch
    import torch.distributed as dist
    found |= {
        "cuda": torch.version.cuda, "hip": torch.version.hip,
        "devices": [
            {
                "name": p.name, "uuid": str(getattr(p, "uuid", "")), "memory": p.total_memory,
                "bus": getattr(p, "pci_bus_id", None), "device": getattr(p, "pci_device_id", None),
                "domain": getattr(p, "pci_domain_id", None), "capability": [p.major, p.minor],
            }
            for p in map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        ],
        "nccl": list(torch.cuda.nccl.version()) if torch.cuda.is_available()
        and dist.is_nccl_available() else None,
    }
print(json.dumps(found))
"""


class Ended(NamedTuple):
    """A command that has ended."""

    status: int
    out: str
    err: str

    def check(self, status: int = 0) -> "Ended":
        """Itself, if its status is this one."""
        assert self.status == status, f"status {self.status}, not {status}: {self.err[-2000:]}"
        return self

    def json(self) -> list[Any]:
        """The lines of its output that are JSON."""
        found = []
        for line in self.out.splitlines():
            with suppress(ValueError):  # a library's own, such as a dict of Python's
                found += [json.loads(line)] if line[:1] in ("{", "[") else []
        return found


class Machine:
    """The Python that is used and its PyTorch, the devices, and how much time is left."""

    def __init__(self, python: str, found: Mapping[str, Any], path: str, limit_s: float) -> None:
        self.python, self.found, self.path = python, found, path
        self.devices: list[dict[str, Any]] = list(found.get("devices", ()))
        self.folder = Path(tempfile.mkdtemp(prefix="spawnlaunch-gpu-"))
        self._ends = time.monotonic() + limit_s
        self.has = {name for name, present in self._presence() if present}

    def _presence(self) -> list[tuple[str, bool]]:
        mig = self.devices and "MIG " in _said(["nvidia-smi", "-L"])
        return [
            *((package, True) for package in self.found["packages"]),
            ("gpu", bool(self.devices)),
            ("two gpus", len(self.devices) > 1),
            ("NVIDIA", bool(self.devices) and bool(self.found.get("cuda"))),
            ("ROCm", bool(self.devices) and bool(self.found.get("hip"))),
            ("nvidia-smi", bool(self.devices) and shutil.which("nvidia-smi") is not None),
            ("NCCL", bool(self.found.get("nccl"))),
            ("MIG", bool(mig)),
        ]

    def remaining_s(self) -> float:
        """Until no check is begun any more."""
        return self._ends - time.monotonic()

    def environ(self, **more: str | None) -> dict[str, str]:
        """The caller's, without what decides about devices and ranks; and `more`."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_VIS", "SLURM"))}
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), self.path)))
        for name, value in more.items():
            kept.pop(name, None)
            if value is not None:
                kept[name] = value
        return kept

    def start(self, *words: str, **more: str | None) -> subprocess.Popen[str]:
        """Start this Python with these words in the folder."""
        return subprocess.Popen(
            [self.python, *words],
            env=self.environ(**more),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **more: str | None) -> Ended:
        """The same, to its end. Raises AssertionError where it does not end in time."""
        return finish(self.start(*words, **more))

    def launch(self, *words: str, **more: str | None) -> Ended:
        """Run the launcher with these words."""
        return self.run("-m", "spawnlaunch", "--prefix=never", *words, **more)

    def script(self, name: str) -> str:
        """The path of a worker's script."""
        return str(SCRIPTS / f"{name}.py")


def finish(process: subprocess.Popen[str]) -> Ended:
    """Wait for a command; one that takes too long is killed, and that is a failure."""
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"did not end in {LIMIT_S:.0f} s: {err[-2000:]}") from None
    return Ended(process.returncode, out, err)


def find(wheels: Path | None, limit_s: float) -> Machine:
    """The first Python whose PyTorch sees a device, else the first that has PyTorch.

    `wheels` is a directory of packages that were carried along: what a Python lacks is installed
    from there, for this run alone. Raises RuntimeError where there is no PyTorch at all.
    """
    candidates = [sys.executable, str(ROOT / ".venv/bin/python"), shutil.which("python3") or ""]
    probed: list[tuple[str, dict[str, Any], str]] = []
    for python in dict.fromkeys(filter(os.path.exists, candidates)):
        path = ""
        found = _probe(python, path)
        lacking = [name for name in PACKAGES if name not in found["packages"]]
        if lacking and wheels is not None:
            path = _install(python, wheels, lacking)
            found = _probe(python, path)
        if "torch" in found["packages"]:
            probed.append((python, found, path))
    if not probed:
        raise RuntimeError(
            f"no Python here has PyTorch: {', '.join(candidates)}; install it, or carry wheels "
            "along and type --wheels DIR"
        )
    best = next((each for each in probed if each[1]["devices"]), probed[0])
    return Machine(*best, limit_s)


def _probe(python: str, path: str) -> dict[str, Any]:
    environ = {**os.environ, "PYTHONPATH": path}
    ended = subprocess.run([python, "-c", PROBE], env=environ, capture_output=True, text=True)
    if ended.returncode:
        print(f"{python} could not be asked: {ended.stderr[-500:]}", file=sys.stderr)
        return {"packages": {}}
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _install(python: str, wheels: Path, names: Sequence[str]) -> str:
    target = tempfile.mkdtemp(prefix="spawnlaunch-wheels-")
    offline = ("--quiet", "--no-index", "--no-deps", "--find-links", str(wheels))
    for name in names:
        subprocess.run([python, "-m", "pip", "install", *offline, "--target", target, name])
    return target


def _said(words: list[str]) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True).stdout
    except OSError:
        return ""
