"""Says that it is ready, then works, writes and reads until stdin or its parent ends it.

Words: seconds to work for at once. It starts a child that works too, and three threads that wait.
"""

import os
import subprocess
import sys
import threading
import time

for _ in range(3):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
CHILD = """
import time
while time.process_time() < 0.5: pass
print(1, flush=True)
time.sleep(3600)
"""
child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE)
child.stdout.read(1)
end = time.process_time() + 0.5
while time.process_time() < end:
    pass
held = bytearray(100 << 20)
del held
with open("/dev/zero", "rb", buffering=0) as zeros, open("/dev/null", "wb", buffering=0) as null:
    for _ in range(100):
        null.write(zeros.read(1 << 16))
print("ready", os.environ["RANK"], os.getpid(), child.pid, flush=True)
time.sleep(3600)
