"""Training scripts of other libraries, as their users write them, under this launcher."""
