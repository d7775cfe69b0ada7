"""T5 in PyTorch."""
