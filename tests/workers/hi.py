"""Say hi, and nothing else."""

print("hi")
