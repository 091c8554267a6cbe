"""Start, watch and end the workers of one node.

front, guard                the process that the user started, and its child, which supervises
attempts                    one run of the workers after the other; restarts
supervisor                  passes events to the decisions, and their actions to the processes
stops                       workers that a signal has stopped
tree, leftovers, removal    processes and files that workers leave
observer                    events as optional parts of a launch, and several nodes, get them
shared_errors               errors that many tasks of a step have in common, printed once
debug, preload/             for a flag only
"""
