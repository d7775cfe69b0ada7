"""TorchBench's utilities as folders import them."""
