"""The launchers of several nodes act as one: they meet, stop together and start again together.

Each node sends the hub a `Report` of what it is: complete, at each change. The hub sends each node
an `Order` of what it is to be. Each side acts on the difference between the two, in one function,
`reconcile`. So an earlier, repeated or lost message changes nothing but time, and a node that
connects again is no special case: its next Report says all.

    Report  who (launcher, host, workers, address, port, role, flags); epoch; state of its workers;
            signal to end; failures with their ages; how the workers ended; silence, and the stacks
    Order   WAIT | RUN | STOP | END; epoch; ranks of its workers and MASTER; grace; cause; status

    node    SEEKING -> JOINED -> LEFT
                RUN of a new epoch, no workers    start the workers
                STOP or END, workers run          end them within the grace
                END, no workers                   exit with its status
                no hub, workers run               end them, and exit with 69
                no hub, no workers                seek the hub until join_timeout
    hub     JOINING -> RUNNING -> STOPPING -> JOINING | ENDED

    messages   Report and Order, and how they are read
    node, hub  the rules: no clock, no socket, no process
    ranks      node ranks and ranks of an epoch
    wire       messages as lines with a MAC; stream: a connection that carries them
    link       a node's connection to the hub; server: the hub's connections
    launcher   the workers of this node; unable: a launcher that cannot take part; hangs: all nodes'

A launch on one node imports nothing of this room and listens on no port.
"""
