"""The machine: its properties, its settings, and its load at the moment."""
