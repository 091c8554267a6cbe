"""Where does each rank sit, and how it gets there.

`plan` decides and touches nothing: by the cores that may be used (`cores`), who claims which of
them (`claims`), and what each gets (`shares`, or a whole one of the `domains`). `apply` does the
system calls. What people see is in `report`, `picture` and `warnings`.
"""
