"""Exports from PyTorch, JAX and TensorFlow that several backends share."""
