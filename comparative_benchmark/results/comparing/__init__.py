"""Comparisons of results, and what casts doubt on them."""
