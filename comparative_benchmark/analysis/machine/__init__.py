"""The machine: what it has, what it can do at most, and what happens on it now."""
