"""T5 that generates, in TensorFlow."""
