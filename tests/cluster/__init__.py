"""A real Slurm on one machine, for tests that must see what Slurm really does."""
