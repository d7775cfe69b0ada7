"""Model implementations in JAX."""
