"""Micro benchmarks: operators and layers over many shapes, raced like models.

`shapes` defines named shapes, `sweeps` sums up their outcome. The operators are in
`openxla.benchmark.operators`. Measurements work as in `cbs run`, except that all shapes share
workers (see `engine.session_pool`).
"""
