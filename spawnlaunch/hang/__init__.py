"""Find which ranks are in the same place, and for which the others wait.

`groups` reads the stacks of processes and puts equal ones together. `flight` reads torch's records,
and finds ranks in different collectives; `culprits` finds the ranks that the others wait for, and
puts both in words. `silence` notices a hang, and `stacks` then asks the processes: by `asked` the
witness in a worker, by a signal faulthandler, and by `spying` py-spy. `held` says what keeps a
process from running.
"""
