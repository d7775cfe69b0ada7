"""The worker process: one measurement, phase by phase. Names no framework."""
