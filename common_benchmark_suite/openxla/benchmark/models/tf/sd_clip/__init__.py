"""The text encoder of Stable Diffusion in TensorFlow."""
