"""Commands that maintain a machine, its artifacts, and the suite itself."""
