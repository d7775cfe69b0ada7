"""BERT in TensorFlow."""
