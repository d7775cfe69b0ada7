"""Starts and observes processes of benchmarks, and ends them with their descendants."""
