"""What was asked for: one table of flags, their readers, help, and names of other launchers."""
