"""Whether outputs are right: pure functions on files of arrays."""
