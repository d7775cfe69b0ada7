"""EfficientNet in JAX."""
