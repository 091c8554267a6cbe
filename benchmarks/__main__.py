"""Run all benchmarks, one after the other, and write each into its section of docs/benchmarks.md.

    python -m benchmarks [PART...]

Each part is a program of its own, so that none finds the remains of another in memory. The others
run after a part that fails, and the exit status is 1.
"""

import subprocess
import sys
import time

PARTS = (
    "launch",
    "first_all_reduce",
    "output",
    "restart",
    "several_nodes",
    "multinode",
    "task_mode",
    "plan",
    "train_loop",
    "watching",
)


def main() -> int:
    parts = sys.argv[1:] or PARTS
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        print(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    failed = []
    for part in parts:
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{part}", "--write"], check=False)
        print(f"{part}: {time.monotonic() - began:.0f} s\n", flush=True)
        failed += [part] if done.returncode else []
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
