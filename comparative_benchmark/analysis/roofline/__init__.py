"""What this machine can do at most, measured, and how near a program comes to it."""
