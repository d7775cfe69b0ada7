"""Model implementations in PyTorch, one folder each."""
