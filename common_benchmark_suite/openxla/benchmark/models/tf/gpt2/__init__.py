"""GPT-2 in TensorFlow."""
