"""How long a test waits for what takes seconds, before it says that it will never come.

How long something takes says how busy the machine is, and no test asserts it. So there is one
number, long enough for twenty others on every core, and shorter than pytest's own limit.
"""

PATIENCE_S = 900
