"""Llama in PyTorch."""
