"""SQL of strangers, in a process of its own that may do nothing else."""
