"""Run the checks and print how each ended; see the package's docstring."""

import argparse
import json
import os
import platform
import shutil
import sys
from pathlib import Path

from tests.gpu import all_checks
from tests.gpu.check import Outcome, run
from tests.gpu.machine import Machine, find

LIMIT_S = 420.0  # after which no check is begun any more


def main(argv: list[str] | None = None) -> int:
    """The exit status: 1 if a check failed, 2 if none could be begun."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--only", metavar="A,B", help="those whose name has one of these in it")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="packages that Python may lack")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="default 420")
    options = parser.parse_args(argv)
    checks = all_checks()
    if options.only:
        parts = options.only.split(",")
        checks = [each for each in checks if any(part in each.name for part in parts)]
    if not checks:
        parser.error(f"no check has {options.only!r} in its name")
    try:
        machine = find(options.wheels, options.limit)
    except RuntimeError as reason:
        print(f"gpu: error: {reason}", file=sys.stderr)
        return 2
    print("\n".join(_about(machine)), flush=True)
    outcomes = []
    for each in checks:
        outcomes.append(run(each, machine))
        print(_line(outcomes[-1]), flush=True)
    shutil.rmtree(machine.folder, ignore_errors=True)
    print("\n".join(_summary(outcomes)))
    if options.json:
        found = {"machine": _machine(machine), "checks": [each._asdict() for each in outcomes]}
        options.json.write_text(json.dumps(found, indent=1, default=dict) + "\n")
    return 1 if any(each.result == "failed" for each in outcomes) else 0


def _machine(machine: Machine) -> dict[str, object]:
    return {
        "host": platform.node(),
        "cpus": os.cpu_count(),
        "interpreter": machine.python,
        "wheels": machine.path,
        **machine.found,
    }


def _about(machine: Machine) -> list[str]:
    found = machine.found
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    runtime = f"CUDA {found['cuda']}" if found.get("cuda") else f"ROCm {found.get('hip')}"
    carried = f"; of carried wheels: {machine.path}" if machine.path else ""
    devices = [f"{each['name']}, {each['memory'] / 2**30:.0f} GiB" for each in machine.devices]
    return [
        f"{machine.python}: Python {found['python']}, {packages}{carried}",
        f"built for {runtime}" if found.get("cuda") or found.get("hip") else "built for the CPU",
        f"devices: {'; '.join(devices) or 'none'}",
        "",
    ]


def _line(outcome: Outcome) -> str:
    why = f"  {outcome.why.strip().splitlines()[-1]}" if outcome.why else ""
    return f"{outcome.result:8} {outcome.seconds:6.1f} s  {outcome.name}{why}"


def _summary(outcomes: list[Outcome]) -> list[str]:
    lines = []
    for outcome in outcomes:
        if outcome.result == "failed":
            lines += ["", f"{outcome.name} failed:", outcome.why.strip()]
    not_run = [each.name for each in outcomes if each.result == "not run"]
    if not_run:
        lines += ["", "did not run, and count as nothing:", *(f"  {name}" for name in not_run)]
    counts = [sum(each.result == name for each in outcomes) for name in ("passed", "failed")]
    return [*lines, "", f"{counts[0]} passed, {counts[1]} failed, {len(not_run)} did not run"]


if __name__ == "__main__":
    sys.exit(main())
