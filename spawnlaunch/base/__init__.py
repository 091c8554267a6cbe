"""The lowest room: system calls, event loop, signals, records, errors, text and sets of CPUs."""
