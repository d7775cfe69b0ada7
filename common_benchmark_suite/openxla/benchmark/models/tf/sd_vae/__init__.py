"""The picture decoder of Stable Diffusion in TensorFlow."""
