"""What benchfiles import of milabench. It decides what to run; the suite runs it."""

__version__ = "0.1.0"
