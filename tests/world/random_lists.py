"""Random host lists of the grammar that every Slurm takes, 22.05 included."""

import random


def random_list(generator: random.Random) -> str:
    """Up to three brackets a name, padded and not, and no suffix after a bracket."""
    return ",".join(random_entry(generator) for _ in range(generator.randint(1, 4)))


def random_entry(generator: random.Random) -> str:
    names = ["n", "node", "rack-", "gpu0", "a.b-", "x1000c"]
    brackets = generator.choice([0, 1, 1, 1, 2, 2, 3])
    parts = [generator.choice(names) + random_bracket(generator) for _ in range(brackets)]
    return "".join(parts) or generator.choice(names) + str(generator.randint(0, 99))


def random_bracket(generator: random.Random) -> str:
    return "[" + ",".join(random_range(generator) for _ in range(generator.randint(1, 3))) + "]"


def random_range(generator: random.Random) -> str:
    low = generator.choice([0, 1, 7, 9, 95, 998, generator.randint(0, 2000)])
    width = generator.choice([0, 0, 0, 2, 3, 4])
    if generator.random() < 0.4:
        return f"{low:0{width}d}"
    high = low + generator.randint(0, 6)
    return f"{low:0{width}d}-{high:0{generator.choice([0, width])}d}"
