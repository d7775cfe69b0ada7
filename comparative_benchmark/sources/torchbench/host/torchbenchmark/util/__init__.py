"""What folders import of TorchBench besides its tasks."""
