"""Exported programs of every other format."""
