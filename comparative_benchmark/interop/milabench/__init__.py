"""Runs milabench's benchmarks as they are: folders, configuration and commands of its guide."""
