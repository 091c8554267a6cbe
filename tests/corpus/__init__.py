"""Programs that people start with torchrun, each under torchrun and under spawnlaunch.

The scripts are of our own, and short; each restates what is published, and its docstring names the
source. What is compared is what a user has of them: what they print on stdout (each line, in
order of the alphabet, because ranks print at once), the exit status, the files that they write, and
that no process is left.
"""
