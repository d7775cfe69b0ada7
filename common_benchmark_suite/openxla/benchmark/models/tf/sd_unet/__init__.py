"""The denoiser of Stable Diffusion in TensorFlow."""
