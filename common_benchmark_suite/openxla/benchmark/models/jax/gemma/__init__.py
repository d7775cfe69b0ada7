"""Gemma in JAX."""
