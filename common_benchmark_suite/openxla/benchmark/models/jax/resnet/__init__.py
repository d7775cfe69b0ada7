"""ResNet in JAX."""
