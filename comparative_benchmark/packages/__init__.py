"""Foreign collections of benchmarks, run as they are."""
