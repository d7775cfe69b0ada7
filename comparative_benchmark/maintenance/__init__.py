"""Commands that look after a machine, its artifacts, and the suite itself."""
