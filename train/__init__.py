"""A small training loop for one process or for many: the same samples, the same loss, any launcher.

Read ``examples/plain_ddp.py`` first, which is the idea in sixty lines; then ``trainer``, which has
one step and one evaluation from top to bottom, ``task`` (what a task of your own has to provide)
and ``config`` (the flags). ``run`` does what comes before the first step and after the last.
"""
