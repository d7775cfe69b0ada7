"""Gemma in TensorFlow."""
