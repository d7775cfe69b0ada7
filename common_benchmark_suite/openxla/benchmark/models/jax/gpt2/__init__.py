"""GPT-2 in JAX."""
