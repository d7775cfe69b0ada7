"""T5 that generates, in JAX."""
