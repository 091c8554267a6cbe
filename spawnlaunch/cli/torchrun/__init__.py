"""torchrun's names: flags that mean little or nothing here, abbreviations, variables; and others'.

Imported where such a name is typed or exported, and nowhere else. docs/torchrun.md has all of them
in tables, with what each does here.
"""
