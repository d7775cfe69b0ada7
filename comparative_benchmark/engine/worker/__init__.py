"""What runs in the other process: one measurement, phase by phase. Knows no framework by name."""
