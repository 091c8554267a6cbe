"""What each worker of a launch is made of, and how a process becomes it."""
