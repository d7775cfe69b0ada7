"""ViT in JAX."""
