"""Whisper in JAX."""
