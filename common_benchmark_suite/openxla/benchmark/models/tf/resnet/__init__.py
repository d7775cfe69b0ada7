"""ResNet in TensorFlow."""
