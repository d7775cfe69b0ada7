"""GPT-2 as a pipeline in TensorFlow."""
