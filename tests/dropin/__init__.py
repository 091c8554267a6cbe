"""The same command lines under torchrun and under spawnlaunch, and what differs between them."""
