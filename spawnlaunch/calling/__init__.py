"""What `spawnlaunch.launch` is made of: the function goes to a launcher, its results come back.

api.launch ──> flags      keyword arguments to words of a command line, checked by `cli`
               shipping   the function to a file, by name or by value
               running    the launcher as a subprocess: its output, and interrupts
                 └─ launcher   the launcher itself, which ends when its caller is gone
                      └─ worker    in every rank: calls the function, its outcome to a file
                           exceptions   with their causes, to a file and back
               outcomes   the files to a list of results, or an exception
"""
