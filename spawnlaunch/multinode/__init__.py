"""The launchers of several nodes act as one: they meet, stop together and restart together.

    hub            in one of the launchers: receives messages of members, decides for all
    phases         the hub's decisions: begin, stop, continue, end
    roster         the members, and the choice of node ranks
    member         in each launcher, also the hub's: does what the hub decides, and fences itself
    rules          the base of hub and member: events one after the other, and a clock
    messages       the messages between hub and members; settings: what the hub goes by, token
    wire           messages as lines of bytes with a MAC, which no stranger can write
    link           a member's connection; server: the hub's; stream: each of them, in an event loop
    deadlines      many deadlines, without a search through all
    node_launch    starts and ends this node's workers as the hub orders
    hangs          ranks of all nodes that hang, compared
    announcements  a launcher that cannot take part tells the others
    words          the lines that a launch on several nodes prints

A launch on one node imports nothing of this room and listens on no port.
"""
