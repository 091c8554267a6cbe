"""Ranks, sizes and the address of rank 0: `resolve` derives them from the manager's variables.

managers/       which manager started this process, and what it exports
ranks           mode, ranks and sizes -> master, the address and port of rank 0
inherited       rank variables, MASTER_ADDR and MASTER_PORT that were in the environment before
meeting         where the launchers of several nodes meet
host, lookup    this machine's names, ports and interfaces
"""
