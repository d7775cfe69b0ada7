"""The benchmarked models, with parameters and inputs, by framework."""
