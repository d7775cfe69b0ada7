"""Commands that measure to answer one question."""
