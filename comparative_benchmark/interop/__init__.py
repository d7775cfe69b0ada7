"""The commands of other benchmark systems."""
