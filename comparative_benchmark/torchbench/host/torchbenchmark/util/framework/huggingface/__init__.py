"""See `model_factory`."""
