"""Stable Diffusion, from a text to a picture, in TensorFlow."""
