"""Where does each rank sit, and how it gets there.

`plan` decides and touches nothing: by who claims which CPUs (`claims`), and what each gets of the
cores that may be used (`cores`, or a whole one of the `domains`). `apply` does the system calls.
What people see is in `placement` and `picture`.
"""
