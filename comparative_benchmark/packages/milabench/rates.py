"""Rates of scripts: which are warm-up, and what replicates and processes add up to."""

import math
import statistics
from collections.abc import Sequence

import attrs

from comparative_benchmark.stats.steadiness import FEWEST_SAMPLES, Steadiness, steadiness

# The test takes a tenth of a millisecond; of many rates not every beginning is tried.
_MOST_TRIES = 64
TOO_FEW = f"fewer than {FEWEST_SAMPLES} rates: no warm-up removed beyond what the script skips"


@attrs.frozen(kw_only=True)
class Steady:
    """The rates of one process that count.

    Attributes:
      warmup: how many came before them.
      steadiness: of them; None where there were too few for the test.
    """

    rates: tuple[float, ...]
    warmup: int
    steadiness: Steadiness | None

    @property
    def is_steady(self) -> bool:
        """Whether they are a speed; few are taken as the script gives them."""
        return bool(self.rates) and (self.steadiness is None or self.steadiness.steady)

    @property
    def rate(self) -> float:
        """Their median, which interruptions move least."""
        return statistics.median(self.rates)


def without_warmup(rates: Sequence[float]) -> Steady:
    """Returns the rates after the warm-up: the longest end that the steadiness test accepts.

    At least half of the rates stay, and at least as many as the test needs. Where no end is steady
    all rates are returned, with the test's reason. Fewer rates than it needs are taken as they are:
    their number is the script's own choice, as is what it skips.
    """
    times_ms = [1000 / rate for rate in rates]
    most = min(len(rates) // 2, len(rates) - FEWEST_SAMPLES)
    if most < 0:
        return Steady(rates=tuple(rates), warmup=0, steadiness=None)
    step = max(1, most // _MOST_TRIES)
    first = steadiness(times_ms)
    found, dropped = first, 0
    while not found.steady and dropped + step <= most:
        dropped += step
        found = steadiness(times_ms[dropped:])
    if not found.steady:
        return Steady(rates=tuple(rates), warmup=0, steadiness=first)
    return Steady(rates=tuple(rates[dropped:]), warmup=dropped, steadiness=found)


def together(processes: Sequence[Sequence[float]]) -> list[float]:
    """Returns the rates of processes that ran at once: the n-th of each, added up.

    Processes that told more than others are cut at their beginning: all ended together.
    """
    shortest = min(map(len, processes), default=0)
    if not shortest:
        return []
    return [math.fsum(row) for row in zip(*(p[-shortest:] for p in processes), strict=True)]
