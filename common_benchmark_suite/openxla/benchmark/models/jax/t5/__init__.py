"""T5 in JAX."""
