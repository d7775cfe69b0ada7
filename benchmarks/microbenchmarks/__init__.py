"""Files that torchao's benchmarking guide has in this folder."""
