"""A worker program: every rank reports its CPUs, memory and device; rank 0 reports the faults."""
