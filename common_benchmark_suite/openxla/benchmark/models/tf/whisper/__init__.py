"""Whisper in TensorFlow."""
