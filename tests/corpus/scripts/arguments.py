"""What a script finds in sys.argv, of words that a shell would change, and where it is.

Source: PyTorch's documentation, torchrun, "script args" (docs/source/elastic/run.rst)
"""

import os
import sys

found = [word.replace(os.environ["LOCAL_RANK"], "R") for word in sys.argv[1:]]
beside = os.path.dirname(os.path.abspath(__file__)) == sys.path[0]
print(f"{__name__} {os.path.basename(sys.argv[0])} {found} {beside} {sys.flags.optimize}")
print(f"{sys.stdin.isatty()} {sys.stdout.line_buffering}")
