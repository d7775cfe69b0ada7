"""Samples as dots of a plot: so few that a page of thousands of cases stays small."""

import math
import random
from collections.abc import Sequence

import attrs
import numpy as np

# Twelve bits a dot, which is finer than a screen: two of these digits.
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
STEPS = len(DIGITS) ** 2 - 1
_CODES = np.frombuffer(DIGITS.encode("ascii"), dtype=np.uint8)
MOST_DOTS = 200
_FEWEST_DOTS = 20
# Over all cases of a page.
_BUDGET = 1_000_000


@attrs.frozen(kw_only=True)
class Dots:
    """Samples for a plot.

    Attributes:
      low_ms, high_ms: the smallest and the largest of all samples.
      processes: for each its dots, two `DIGITS` a dot: the position on a logarithmic scale from
        `low_ms` (0) to `high_ms` (`STEPS`).
      shown: how many dots there are, of `samples`.
    """

    low_ms: float
    high_ms: float
    processes: Sequence[str]
    shown: int
    samples: int


def dots_per_case(cases: int) -> int:
    """Returns how many dots each of so many cases may have."""
    return max(_FEWEST_DOTS, min(MOST_DOTS, _BUDGET // max(cases, 1)))


def thin(processes: Sequence[Sequence[float]], most: int, seed: str) -> Dots:
    """Returns at most about `most` dots, in the order of the samples.

    Each process keeps its share of them, chosen at random by the seed, and always its fastest and
    its slowest sample: so the dots show the range as it is, and not its tails' frequency.

    Args:
      processes: latencies in ms of each process, all positive; at least one in all.
      most: how many dots.
      seed: of the choice; the same for the same case, so that a page can be built again.
    """
    everything = [value for values in processes for value in values]
    total = len(everything)
    low, high = min(everything), max(everything)
    chooser = random.Random(seed)  # noqa: S311  # a choice that can be made again, no secret
    kept = [
        _chosen(values, max(2, round(most * len(values) / total)), chooser) for values in processes
    ]
    scale = STEPS / math.log(high / low) if high > low else 0.0
    return Dots(
        low_ms=low,
        high_ms=high,
        processes=[_digits(values, low, scale) for values in kept],
        shown=sum(map(len, kept)),
        samples=total,
    )


def _chosen(values: Sequence[float], count: int, chooser: random.Random) -> list[float]:
    if len(values) <= count:
        return list(values)
    ends = {values.index(min(values)), values.index(max(values))}
    others = [position for position in range(len(values)) if position not in ends]
    kept = ends | set(chooser.sample(others, count - len(ends)))
    return [values[position] for position in sorted(kept)]


def _digits(values: Sequence[float], low: float, scale: float) -> str:
    steps = np.rint(np.log(np.asarray(values, dtype=np.float64) / low) * scale).astype(np.int64)
    pairs = np.stack(np.divmod(steps, len(DIGITS)), axis=1)
    text: str = _CODES[pairs].tobytes().decode("ascii")
    return text
