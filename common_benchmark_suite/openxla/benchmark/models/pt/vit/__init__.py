"""ViT in PyTorch."""
