"""What is measured: definitions, models, inputs and artifacts of the Common Benchmark Suite.

Nothing in this package knows how a measurement is taken; that is `comparative_benchmark`.
"""
