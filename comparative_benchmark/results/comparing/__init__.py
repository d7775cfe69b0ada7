"""Comparisons of results, and reasons to doubt them."""
