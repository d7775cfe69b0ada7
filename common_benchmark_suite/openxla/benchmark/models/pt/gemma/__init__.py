"""Gemma in PyTorch."""
