"""Report what this worker got from the launcher."""

import os
import sys

from tests.workers.reporting import report

report(
    argv=sys.argv,
    cwd=os.getcwd(),
    cpus=sorted(os.sched_getaffinity(0)),
    write_through=sys.stdout.write_through,
    session_leader=os.getsid(0) == os.getpid(),
    pid=os.getpid(),
    ppid=os.getppid(),
)
