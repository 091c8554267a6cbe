"""The batch scripts of slurm/, and what the documents that people follow say to type."""
