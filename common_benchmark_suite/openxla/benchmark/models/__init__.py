"""Model implementations, one folder per framework, and what they share."""
