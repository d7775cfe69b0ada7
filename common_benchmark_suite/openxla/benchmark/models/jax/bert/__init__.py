"""BERT in JAX."""
