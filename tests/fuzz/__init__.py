"""Random input for whatever reads input: it is read, or refused in one line.

    python -m tests.fuzz cli --seed 1 --count 100000
    python -m tests.fuzz environments --seed 1 --count 1000 --real

Each case has a seed of its own, which a failure tells, and which makes it again.
"""
