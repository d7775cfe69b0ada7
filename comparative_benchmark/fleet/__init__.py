"""The same matrix on many machines, through a scheduler that already runs them."""
