"""Results over time: a database of flat rows, queries, and detection of regressions."""
