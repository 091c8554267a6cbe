"""Where does each rank sit, and how it gets there.

`plan.plan` decides and touches nothing; `apply.apply` does the system calls. What people see is in
`report` and `picture`; masks that somebody set before us are in `advice`, and OpenMP variables that
would undo a binding in `openmp`.
"""
