"""Model implementations in PyTorch."""
