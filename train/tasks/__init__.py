"""The tasks that come with the loop."""
