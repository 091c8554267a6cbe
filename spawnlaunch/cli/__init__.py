"""Read the user's request: one table of flags, their readers, help, and other launchers' names."""
