"""Scripts of workers that die slowly, and see each other die."""

# What is at the top of each worker's script. Cores go to the directory of the test.
COMMON = """
import ctypes, json, os, resource, signal, sys, time
rank, here = int(os.environ["RANK"]), os.environ["HERE"]
os.chdir(here)
hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))

def tell(name):
    with open(f"{name}.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{name}.new", name)

def told(name):
    while not os.path.exists(name):
        time.sleep(0.001)
    with open(name) as file:
        return int(file.read())

def wait_until_it_dies(pid):
    while True:
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(") ")[2].split()
        except OSError:
            return
        if fields[0] in "ZX" or int(fields[6]) & 0x404:  # PF_EXITING, PF_SIGNALED
            return
        time.sleep(0.0005)

def slow_to_die():
    return bytearray(b"x") * (200 << 20)
"""
