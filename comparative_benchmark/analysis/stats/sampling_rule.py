"""How long to warm up and to sample: fixed counts, until the numbers are good enough, or not."""

import math
import statistics
from collections.abc import Sequence

import attrs

from comparative_benchmark.analysis.stats.steadiness import FEWEST_SAMPLES

_TIMER_STEPS = 10_000
# Samples travel through a pipe and stay in the results.
_MOST_ITERATIONS = 2000


@attrs.frozen(kw_only=True)
class FixedCounts:
    """What `-w` and `-iter` ask for: one process, so many iterations."""

    warmup_iterations: int
    iterations: int


@attrs.frozen(kw_only=True)
class CompileOnly:
    """What `--compile-only` asks for: pairs of a cold and a warm compile, and no latencies.

    Each pair has a cache directory of its own, so that there are as many cold compiles as pairs.
    """

    pairs: int = 6
    seed: int | None = 0


@attrs.frozen(kw_only=True)
class SamplingRule:
    """Sample until the numbers are good enough, or cannot become so, or the budget is spent.

    Attributes:
      goal: relative half-width of the 95 % interval of a latency at which to stop.
      effect: relative difference that a race is to find with a probability of 90 %.
      min_processes: fresh processes for each trial; fewer than 3 support no verdict. They are the
        pilot that tells how many more it takes.
      max_processes: where to stop although that is not reached.
      min_rounds, max_rounds: rounds of one process; a round has a block of each competitor.
      block_ms: how long a block should take; longer than the machine's short disturbances.
      round_budget_s: measuring time of one process, after which no round is begun.
      warmup_floor_ms: before which no warm-up ends: clocks, allocators and caches settle in time,
        not in iterations, of which a millisecond may hold many.
      warmup_budget_ms: after which a trial that is not steady is `unsteady`, if it has had
        enough iterations to look at.
      steady_window: samples at the end of the warm-up that are tested for a trend.
      steady_span_ms: time after which fewer samples, 8 at least, are enough for that test: what a
        process warms up in is time more than iterations.
      refresh_below_ms: iterations that are shorter are preceded by an unmeasured one in each block,
        as others have used the caches meanwhile. Longer ones read far more than caches hold: a
        first iteration takes no longer than the next (reasoned, not measured yet).
      trial_budget_s: time of a trial after which it gets no further process beyond
        `min_processes`. Start-up counts once it has six processes (`planning.CLOSE_PROCESSES`).
      seed: decides the order of starts and of blocks; recorded with the results. None until a run
        has drawn one.
    """

    goal: float = 0.01
    effect: float = 0.03
    min_processes: int = 3
    max_processes: int = 10
    min_rounds: int = 10
    max_rounds: int = 30
    block_ms: float = 40.0
    round_budget_s: float = 10.0
    warmup_floor_ms: float = 250.0
    warmup_budget_ms: float = 10_000.0
    steady_window: int = 20
    steady_span_ms: float = 1000.0
    refresh_below_ms: float = 50.0
    trial_budget_s: float = 30.0
    seed: int | None = 0

    def warmup_iterations(self, samples_ms: Sequence[float]) -> int:
        """Returns how many iterations to run before looking again: some 20 ms, at least 3.

        To look takes longer than to run what takes microseconds: a program of 4 us would be looked
        at hundreds of times before the floor is reached.
        """
        if not samples_ms:
            return 5
        look_ms = 20 / max(statistics.median(samples_ms[-_MOST_ITERATIONS:]), 1e-3)
        return max(3, min(_MOST_ITERATIONS, math.ceil(look_ms)))

    def warm_up_end(self, samples_ms: Sequence[float]) -> Sequence[float]:
        """Returns the part of a warm-up that is tested for a trend."""
        return samples_ms[-self._window(samples_ms) :]

    def is_warm_up_enough(self, samples_ms: Sequence[float]) -> bool:
        """Returns whether a warm-up that looks steady may end."""
        if self._is_over_budget(samples_ms):
            return True
        long_enough = sum(samples_ms) >= self.warmup_floor_ms
        return long_enough and len(samples_ms) >= self._window(samples_ms)

    def is_warm_up_spent(self, samples_ms: Sequence[float]) -> bool:
        """Returns whether a warm-up that is not steady has had its chance."""
        return self._is_over_budget(samples_ms) and len(samples_ms) >= 1.5 * self.steady_window

    def _window(self, samples_ms: Sequence[float]) -> int:
        """Returns how many samples are tested: as many as the span takes, within limits.

        The first half of a warm-up whose budget is spent are let go.
        """
        fitting = self.steady_span_ms / max(statistics.median(samples_ms), 1e-3)
        if self._is_over_budget(samples_ms):
            fitting = min(fitting, len(samples_ms) // 2)
        return max(FEWEST_SAMPLES, math.ceil(min(self.steady_window, fitting)))

    def refreshes(self, median_ms: float) -> bool:
        """Returns whether a block begins with an unmeasured iteration."""
        return median_ms < self.refresh_below_ms

    def _is_over_budget(self, samples_ms: Sequence[float]) -> bool:
        return sum(samples_ms) >= self.warmup_budget_ms

    def iterations_per_block(self, median_ms: float, timer_ns: float = 0.0) -> int:
        """Returns how many iterations make a block.

        A block takes about `block_ms`, and never less than 10,000 steps of the timer, so that its
        own time is known to 0.01 %.
        """
        block_ms = max(self.block_ms, _TIMER_STEPS * timer_ns / 1e6)
        return max(1, min(_MOST_ITERATIONS, math.ceil(block_ms / max(median_ms, 1e-3))))
