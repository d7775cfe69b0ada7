"""milabench as benchfiles import it. It builds commands; the suite runs them."""

__version__ = "0.1.0"
