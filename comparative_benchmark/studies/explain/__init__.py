"""`cbs explain`: explains from two profiles why one competitor is slower than another.

`explained` selects the two results and prints the table. `profiling` takes missing profiles. The
comparison itself is in `results.comparing.explanations`.
"""
