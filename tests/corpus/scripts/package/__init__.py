"""A package of which a module is launched."""
