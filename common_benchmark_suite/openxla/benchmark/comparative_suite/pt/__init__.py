"""Cases in PyTorch."""
