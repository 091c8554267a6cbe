"""Go: exec the worker in place, or start the workers and watch them."""
