"""`cbs artifacts`: creates, publishes, locks and fetches artifacts."""
