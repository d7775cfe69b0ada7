"""Which models are benchmarked, with which parameters and inputs, in which framework."""
