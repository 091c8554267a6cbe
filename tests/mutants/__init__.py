"""Faults put into the launcher's code, one at a time: the tests have to find each.

`python -m tests.mutants --sample 600 --seed 1` tries them. A mutant is a change of the syntax tree:
a comparison, a constant, `and` for `or`, a `not` that is left out, a condition that is turned
round, a statement that is dropped. It is killed by the tests of its room or by the simulation.
"""
