"""Say which rank is ready, then sleep until a signal ends it."""

import os
import sys
import time

sys.stdout.write(f"ready {os.environ['RANK']}\n")
time.sleep(600)
