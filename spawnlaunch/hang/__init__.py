"""Find which ranks are in the same place, from their stacks and from NCCL's records.

`frames` reads stacks as faulthandler and py-spy write them, `groups` puts equal ones together, and
`flight` finds the first collective on which ranks disagree. `silence` notices a hang, and `stacks`
then asks the processes: by `asked` the witness in a worker, by `spying` py-spy, and by `flight`
NCCL's recorder. `held` says what keeps a process from running, and
`culprits` for whom the others wait.
"""
