"""Commands that take measurements to answer a specific question."""
