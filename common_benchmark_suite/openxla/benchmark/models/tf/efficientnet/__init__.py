"""EfficientNet in TensorFlow."""
