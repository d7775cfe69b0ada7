"""Checks whether this machine is suitable for benchmarking; changes nothing."""
