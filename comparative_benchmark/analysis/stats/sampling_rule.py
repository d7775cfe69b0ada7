"""Rules for warm-up and sampling: fixed counts, or until the results are precise enough."""

import math
import statistics
from collections.abc import Sequence

import attrs

from comparative_benchmark.analysis.stats.steadiness import FEWEST_SAMPLES

_TIMER_STEPS = 10_000
# Samples are sent through a pipe and stored in the results.
_MOST_ITERATIONS = 2000


@attrs.frozen(kw_only=True)
class FixedCounts:
    """The rule of `-w` and `-iter`: one process with this many iterations."""

    warmup_iterations: int
    iterations: int


@attrs.frozen(kw_only=True)
class CompileOnly:
    """The rule of `--compile-only`: pairs of a cold and a warm compilation, and no latencies.

    Each pair has a separate cache directory, so that there are as many cold compilations as pairs.
    """

    pairs: int = 6
    seed: int | None = 0


@attrs.frozen(kw_only=True)
class SamplingRule:
    """Samples until the results are precise enough, cannot become so, or the budget is spent.

    Attributes:
      goal: relative half-width of a latency's 95 % interval at which to stop.
      effect: relative difference that a race should find with a probability of 90 %.
      min_processes: fresh processes for each trial; fewer than 3 support no verdict. They are the
        pilot that determines how many more are needed.
      max_processes: where to stop even if that is not reached.
      min_rounds, max_rounds: rounds of one process; a round has a block of each competitor.
      block_ms: target duration of a block; longer than short disturbances of the machine.
      round_budget_s: measuring time of one process, after which no round is started.
      warmup_floor_ms: minimum duration of a warm-up: clocks, allocators and caches settle in time,
        not in iterations, many of which may fit in a millisecond.
      warmup_budget_ms: duration after which a trial that is not steady is `unsteady`, if it has had
        enough iterations to test.
      steady_window: samples at the end of the warm-up that are tested for a trend.
      steady_span_ms: time after which fewer samples, at least 8, are enough for that test, because
        processes warm up in time rather than in iterations.
      refresh_below_ms: in each block, shorter iterations are preceded by an unmeasured one, because
        others have used the caches meanwhile. Longer ones read far more than caches hold: a first
        iteration takes no longer than the next (reasoned, not measured yet).
      trial_budget_s: time of a trial after which it gets no further process beyond `min_processes`.
        Start-up counts once it has six processes (`planning.CLOSE_PROCESSES`).
      seed: determines the order of starts and of blocks; recorded with the results. None until a
        run has drawn one.
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
        """Returns how many iterations to run before the next test: some 20 ms, at least 3.

        A test takes longer than an iteration of a few microseconds: a program of 4 us would be
        tested hundreds of times before the floor is reached.
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
        """Returns whether an unsteady warm-up has used up its budget and iterations."""
        return self._is_over_budget(samples_ms) and len(samples_ms) >= 1.5 * self.steady_window

    def _window(self, samples_ms: Sequence[float]) -> int:
        """Returns the number of samples to test: as many as the span takes, within limits.

        If the warm-up budget is spent, the first half of the samples is left out.
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
        """Returns the number of iterations in a block.

        A block takes about `block_ms`, and never less than 10,000 steps of the timer, so that its
        own time is known to 0.01 %.
        """
        block_ms = max(self.block_ms, _TIMER_STEPS * timer_ns / 1e6)
        return max(1, min(_MOST_ITERATIONS, math.ceil(block_ms / max(median_ms, 1e-3))))
