"""Which ranks are in the same place, and which are not: from their stacks and from NCCL's records.

`frames` reads stacks as faulthandler and py-spy write them, `groups` puts equal ones together, and
`flight` finds the first collective on which ranks disagree. `hang/silence` asks the processes, and
`flight` NCCL's recorder in a rank, through its pipe.
"""
