"""`cbs explain`: explains from two profiles why one competitor is slower than another.

`explained` selects the two results, `profiling` takes missing profiles, and `table` prints. The
comparison itself is in `results.comparing.explanations`.
"""
