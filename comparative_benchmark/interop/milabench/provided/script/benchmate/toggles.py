"""Environment variables that override a script's numbers."""

import os


def get_poll_interval(value: float) -> float:
    """Returns the seconds between two looks at the devices."""
    return float(os.environ.get("BENCHMATE_POLL_INTERVAL", value))


def get_observation_count(value: int) -> int:
    """Returns how many observations are wanted."""
    return int(os.environ.get("BENCHMATE_OBSERVATION_COUNT", value))


poll_interval_default = get_poll_interval(0.25)
log_pattern = os.environ.get("BENCHMATE_LOG_MODE", "lean")
