"""Comparisons of results: ratios, their reasons, and reasons to doubt them."""
