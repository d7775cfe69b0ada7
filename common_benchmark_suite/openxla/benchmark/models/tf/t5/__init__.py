"""T5 in TensorFlow."""
