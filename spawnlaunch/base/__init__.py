"""Below all: the door to the system, loop, signals, records, errors, text and sets of CPUs."""
