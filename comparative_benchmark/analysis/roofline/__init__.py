"""Ceilings of this machine, measured, and how close programs come to them."""
