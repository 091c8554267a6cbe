"""Start, watch and end the workers of one node.

front                       the process that the user started
guard                       its child, which supervises: attempts, restarts, and the report
supervisor                  passes events to the decisions, and their actions to the processes
processes                   starts, signals and reaps the workers
tree                        processes below the workers, and those that they leave
observer                    events as optional parts of a launch, and several nodes, get them
shared_errors               errors that many tasks of a step have in common, printed once
preload/                    for a flag only
"""
