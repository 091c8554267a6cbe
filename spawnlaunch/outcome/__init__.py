"""Why a launch ended: what failed first, in which words, and with which status."""
