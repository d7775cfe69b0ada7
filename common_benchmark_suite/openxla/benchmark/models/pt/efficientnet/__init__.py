"""EfficientNet in PyTorch."""
