"""Why results differ, and how close they come to the machine's limits."""
