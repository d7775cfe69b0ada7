"""The model's own code."""
