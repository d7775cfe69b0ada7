"""Processes of benchmarks: started, observed, and ended with their children."""
