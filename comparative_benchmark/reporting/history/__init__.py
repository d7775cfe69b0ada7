"""Results over time: a database of flat rows, queries, and steps that nobody wanted."""
