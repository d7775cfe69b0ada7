"""ResNet in PyTorch."""
