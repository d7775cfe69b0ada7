"""T5 that generates, in PyTorch."""
