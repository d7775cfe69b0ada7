"""Model implementations in JAX, one folder each."""
