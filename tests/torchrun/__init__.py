"""What runs under torchrun runs the same under spawnlaunch, or differs as docs/torchrun.md says."""
