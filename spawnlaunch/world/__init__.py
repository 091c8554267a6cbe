"""Who am I among how many: `resolve` derives it from what the resource manager exports.

managers/       which manager started us, and what it answers
ranks           mode, ranks and sizes -> master, the address and port of rank 0
inherited       what the environment has of them already
meeting         where the launchers of several nodes meet -> gathering, the record of that
host, lookup    this machine's names, ports and interfaces
"""
