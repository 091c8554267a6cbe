"""The launchers of several nodes act as one: they meet, stop as one, and start again as one.

    hub       one per gang, on the endpoint's node: hears the members, and decides for all
    phases    what it concludes: begin, stop, go on, end
    member    one per node, the hub's too: does what the hub decides, and fences itself
    rules     what both have in common: events one after the other, and a clock
    messages  what they say to each other
    wire      messages as lines of bytes that nobody else can write
    link      a member's connection; server: the hub's connections; both live in an event loop

A launch on one node imports nothing of this and listens nowhere.
"""
