"""Userbenchmarks: folders with a `run(args)` function that writes a metrics file."""
