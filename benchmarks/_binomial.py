"""An exact interval of a share."""

import math
from collections.abc import Callable


def share_interval(successes: int, trials: int, *, level: float = 0.95) -> tuple[float, float]:
    """Returns the limits of a share of which `successes` of `trials` were seen.

    Clopper & Pearson, "The use of confidence or fiducial limits" (Biometrika 26, 1934): all shares
    under which neither so many nor so few would be rarer than half of 1 - level. Holds the truth at
    least as often as `level` says; assumes that trials are independent and have the same share.

    Raises:
      ValueError: no trials, or more successes than trials.
    """
    if not 0 <= successes <= trials or not trials:
        raise ValueError(f"{successes} of {trials} is no share")
    tail = (1 - level) / 2
    low, high = 0.0, 1.0
    if successes:
        low = _root(lambda share: 1 - _at_most(successes - 1, trials, share) - tail)
    if successes < trials:
        high = _root(lambda share: tail - _at_most(successes, trials, share))
    return low, high


def _at_most(successes: int, trials: int, share: float) -> float:
    """Returns the probability of so many successes or fewer."""
    return math.fsum(
        math.comb(trials, count) * share**count * (1 - share) ** (trials - count)
        for count in range(successes + 1)
    )


def _root(rising: Callable[[float], float]) -> float:
    """Returns where a function that rises from 0 to 1 crosses zero, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2
