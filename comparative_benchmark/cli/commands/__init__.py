"""The commands: each turns parsed options into calls, prints, and returns an exit code."""
