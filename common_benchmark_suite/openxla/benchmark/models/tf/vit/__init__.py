"""ViT in TensorFlow."""
