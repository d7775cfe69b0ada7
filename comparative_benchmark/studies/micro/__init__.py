"""Micro benchmarks: operators and layers over many shapes, raced like models.

`shapes` has the shapes by name, `cases` makes cases of them, `command` is `cbs micro`. What is
measured is in `openxla.benchmark.operators`; how is what `cbs run` does, but that workers are
shared by all shapes (see `engine.session_pool`).
"""
