"""Detects autocorrelated processes, which make intervals too narrow."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from comparative_benchmark.analysis.stats.analysis import Array

# Among fewer values in a row, no order is unlikely enough.
FEWEST = 8
_ERROR = 0.01
_PERMUTATIONS = 20_000


def resembles(values: Sequence[float]) -> bool:
    """Returns whether successive values resemble each other more than chance allows.

    Bartels' rank version of von Neumann's ratio (J. Am. Stat. Assoc. 77, 1982) at 1 %, one-sided.
    With ten values of an AR(1) series it detects a coefficient of 0.5 in 10 % of cases and one of
    0.8 in 29 %: weaker dependence cannot be seen in a race. False for fewer than eight values.
    """
    if len(values) < FEWEST:
        return False
    ranks = np.argsort(np.argsort(np.asarray(values, dtype=np.float64)))
    ratio = _ratio(ranks.astype(np.float64))
    return bool(ratio <= _critical(len(values)))


def _ratio(ranks: Array) -> Array:
    """Returns the sum of squared steps over the sum of squares, along the last axis."""
    steps = np.diff(ranks, axis=-1)
    centred = ranks - (ranks.shape[-1] - 1) / 2
    ratio: Array = (steps**2).sum(axis=-1) / (centred**2).sum(axis=-1)
    return ratio


@lru_cache
def _critical(count: int) -> float:
    """Returns the ratio below which random orders fall in 1 % of cases."""
    orders = np.random.default_rng(count).random((_PERMUTATIONS, count)).argsort(axis=-1)
    return float(np.quantile(_ratio(orders.astype(np.float64)), _ERROR))
