"""`cbs artifacts`: makes, publishes, locks and fetches artifacts."""
