"""Reads what this machine would do to a measurement; changes nothing."""
