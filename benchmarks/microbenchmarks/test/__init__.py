"""Tests that the guide refers to: `python -m unittest discover benchmarks/microbenchmarks/test`."""
