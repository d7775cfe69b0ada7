"""What torchao's benchmarking guide has at this place."""
