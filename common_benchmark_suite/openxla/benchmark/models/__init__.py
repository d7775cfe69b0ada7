"""Model implementations, one folder per framework, and their common parts."""
