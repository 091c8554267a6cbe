"""A worker program: every rank reports what it really got; rank 0 says what is wrong with it."""
