"""Start, watch and end the workers of one node.

front, guard                what the user started, and its child, which supervises
attempts                    one run of the workers after the other; restarts
supervisor                  what happens -> decisions, what follows -> processes, is done to them
stops                       workers that a signal has stopped
tree, leftovers, removal    what workers leave: processes, and files
observer                    what optional parts hear of all this
ganged, telling, unable     several nodes
shared_errors               what many tasks come to, said once
debug, preload/             for a flag only
"""
