"""`cbs artifacts`: make, publish, lock, fetch and look after the artifacts of models."""
