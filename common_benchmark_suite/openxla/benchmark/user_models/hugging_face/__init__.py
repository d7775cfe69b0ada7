"""Directories in Hugging Face's format."""
