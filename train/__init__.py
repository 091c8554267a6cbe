"""A small training loop for one process or for many: the same samples, the same loss, any launcher.

Read it in this order: ``__main__`` and ``worker`` (how a worker starts and leaves), ``config`` (the
flags), ``loop`` (the training itself), then ``task`` (what a task of your own has to provide).
"""
