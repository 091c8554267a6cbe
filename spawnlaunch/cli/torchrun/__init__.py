"""Names of torchrun and other launchers: flags with little or no effect, abbreviations, variables.

Imported only where the user uses such a name. docs/torchrun.md has all of them in tables, with
their effects here.
"""
