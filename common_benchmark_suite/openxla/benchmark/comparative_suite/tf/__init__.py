"""Cases in TensorFlow."""
