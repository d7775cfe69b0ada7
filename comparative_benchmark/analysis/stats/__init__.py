"""Estimates, intervals and plans: pure functions on samples."""
