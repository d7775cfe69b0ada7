"""Python files that make a model."""
