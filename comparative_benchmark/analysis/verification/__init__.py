"""Verification of outputs: pure functions on files of arrays."""
