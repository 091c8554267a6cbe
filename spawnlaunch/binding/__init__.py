"""Decide the CPUs, memory nodes and threads of each rank, and bind the ranks to them.

`plan` only decides: from the CPUs that each rank claims (`claims`), and its share of the usable
cores (`cores`). `apply` does the system calls. `placement` and `picture` show the result to users.
"""
