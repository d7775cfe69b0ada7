"""Rates of steps whose size the script reports."""

import time
from collections.abc import Callable
from typing import Any

from .metrics import earlystop_count
from .pushers import Push


class StepTimer:
    """Adds up the items of steps, and reports a rate whenever there are enough for one."""

    def __init__(self, pusher: Push, sync: "Callable[[], Any]" = lambda: None) -> None:
        self.pusher, self.sync = pusher, sync
        self.start_time = time.perf_counter()
        self.end_time = 0.0
        self.n_size, self.n_obs, self.timesteps = 0, 0, 0
        self.total_obs = earlystop_count()

    def step(self, step_size: Any) -> None:
        """Adds the items of a step."""
        self.n_size += step_size

    def end(self) -> None:
        """Reports the rate since the last report."""
        self.sync()
        self.end_time = time.perf_counter()
        elapsed_s = self.end_time - self.start_time
        self.pusher(rate=self.n_size / elapsed_s, units="items/s", task="train")
        self.pusher(progress=(self.n_obs, self.total_obs), task="early_stop")
        self.n_size = 0
        self.n_obs += 1
        self.start_time = self.end_time

    def log(self, **fields: Any) -> None:
        """Reports other values."""
        self.pusher(**fields)
