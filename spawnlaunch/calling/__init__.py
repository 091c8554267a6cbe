"""The parts of `spawnlaunch.launch`: the function goes to a launcher, its results come back.

api.launch ──> sending    the function to a file, by value or by name
               called     the launcher itself, which ends when its caller is gone
                 └─ worker    in every rank: calls the function, its outcome to a file
               outcomes   the files to a list of results, or an exception
"""
