"""The parts of `spawnlaunch.launch`: the function goes to a launcher, its results come back.

api.launch ──> keywords   keyword arguments to words of a command line, which `cli` reads
               sending    the function to a file, by value or by name
               running    the launcher as a subprocess: its output, and interrupts
                 └─ called     the launcher itself, which ends when its caller is gone
                      └─ worker    in every rank: calls the function, its outcome to a file
               outcomes   the files to a list of results, or an exception
"""
