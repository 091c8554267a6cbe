"""The launchers of several nodes act as one: they meet, stop together and restart together.

    hub       one per gang, on the endpoint's node: receives messages of members, decides for all
    phases    the hub's decisions: begin, stop, continue, end
    member    one per node, also on the hub's: does what the hub decides, and fences itself
    rules     the base of hub and member: events one after the other, and a clock
    messages  the messages between hub and members
    wire      messages as lines of bytes with a MAC, which no stranger can write
    link      a member's connection; server: the hub's connections; both run in an event loop

A launch on one node imports nothing of this room and listens on no port.
"""
