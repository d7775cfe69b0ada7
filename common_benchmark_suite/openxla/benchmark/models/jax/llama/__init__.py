"""Llama in JAX."""
