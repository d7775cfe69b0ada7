"""ViT in TFLite."""
