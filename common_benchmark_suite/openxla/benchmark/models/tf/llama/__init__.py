"""Llama in TensorFlow."""
