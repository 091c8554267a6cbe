"""The same trouble under torchrun and under spawnlaunch: the second is never worse."""
