"""Tests that the guide names: `python -m unittest discover benchmarks/microbenchmarks/test`."""
