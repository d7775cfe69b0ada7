"""How long to warm up and to sample: either fixed counts, or until the numbers are good enough."""

import math
import statistics
from collections.abc import Sequence

import attrs


@attrs.frozen(kw_only=True)
class FixedCounts:
    """What `-w` and `-iter` ask for: one process, so many iterations."""

    warmup_iterations: int
    iterations: int


@attrs.frozen(kw_only=True)
class SamplingRule:
    """Sample until the interval is narrow enough or the budget is spent.

    Attributes:
      goal: relative half-width of the 95 % interval at which to stop.
      min_processes: fresh processes for each trial; fewer than 3 support no verdict.
      max_processes: where to stop although the goal is not reached.
      min_rounds, max_rounds: rounds of one process; a round has a block of each competitor.
      block_ms: how long a block should take; longer than the machine's short disturbances.
      round_budget_s: measuring time of one process, after which no round is begun.
      warmup_budget_ms: after which a trial that is not steady is `unsteady`.
      steady_window: samples at the end of the warm-up that are tested for a trend.
      seed: decides the order of starts and of blocks; recorded with the results.
    """

    goal: float = 0.01
    min_processes: int = 3
    max_processes: int = 5
    min_rounds: int = 10
    max_rounds: int = 30
    block_ms: float = 40.0
    round_budget_s: float = 10.0
    warmup_budget_ms: float = 10_000.0
    steady_window: int = 20
    seed: int = 0

    def warmup_iterations(self, samples_ms: Sequence[float]) -> int:
        """Returns how many iterations to run before looking again: some 20 ms, at least 5."""
        if not samples_ms:
            return 5
        return max(5, min(200, math.ceil(20 / max(statistics.median(samples_ms), 1e-3))))

    def iterations_per_block(self, median_ms: float) -> int:
        """Returns how many iterations make a block of about `block_ms`."""
        return max(1, min(2000, math.ceil(self.block_ms / max(median_ms, 1e-3))))
