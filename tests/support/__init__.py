"""What tests of several packages share: starting programs, watching them, and waiting.

launching   the launcher as a user starts it, other programs, and a clean environment for both
watching    a launcher that runs, up to the end of the last process that came from it
processes   what processes there are, and waiting until something holds
effort      what an action costs, in numbers that no other work on the machine changes
required    what the machine must have for a test
"""
