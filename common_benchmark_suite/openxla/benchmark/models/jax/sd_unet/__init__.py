"""The denoiser of Stable Diffusion in JAX."""
