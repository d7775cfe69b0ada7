"""Whisper in PyTorch."""
