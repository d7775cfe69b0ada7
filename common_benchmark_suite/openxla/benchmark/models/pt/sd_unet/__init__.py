"""The denoiser of Stable Diffusion in PyTorch."""
