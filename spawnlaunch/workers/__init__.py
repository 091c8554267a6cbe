"""The parts of each worker of a launch, and the steps by which a process becomes it."""
