"""Go: exec the worker in place, or start the workers and watch them.

starting                    what a worker is made of
launcher                    the launcher and its guard
attempts                    one run of the workers after the other; restarts
supervisor                  what happens -> decisions, what follows -> processes, is done to them
output, pipes, lines        what the workers write
evidence, endings           how they ended, and in words
tree, leftovers             what they leave
ganged, telling, unable     several nodes
routes, log_place, journal, debug, hang/, preload/     for a flag only
"""
