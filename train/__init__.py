"""A small training loop for one process or for many: the same samples, the same loss, any launcher.

Read ``examples/plain_ddp.py`` first, which is the idea in sixty lines; then ``loop`` and
``learner`` (the training itself), ``task`` (what a task of your own has to provide), ``config``
(the flags).
"""
