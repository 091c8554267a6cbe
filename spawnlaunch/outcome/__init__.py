"""The end of a launch: the first failure, the words for it, and the exit status."""
