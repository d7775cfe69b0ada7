"""Faults planted on purpose: each must cost its own trial and nothing else."""
