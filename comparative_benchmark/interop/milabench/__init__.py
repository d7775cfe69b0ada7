"""Runs unmodified milabench benchmarks with the folders, settings and commands of its guide."""
