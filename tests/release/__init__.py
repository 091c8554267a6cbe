"""make release-check: all of a release that a program can do, on a clean clone; see __main__.py."""
