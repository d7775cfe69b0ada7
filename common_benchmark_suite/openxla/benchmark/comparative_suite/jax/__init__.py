"""Cases in JAX."""
