"""A model module without `create_model`."""
