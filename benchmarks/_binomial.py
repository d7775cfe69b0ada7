"""An exact interval of a share."""

from scipy import stats


def share_interval(successes: int, trials: int, *, level: float = 0.95) -> tuple[float, float]:
    """Returns the limits of a share of which `successes` of `trials` were seen.

    Clopper & Pearson, "The use of confidence or fiducial limits" (Biometrika 26, 1934): holds the
    truth at least as often as `level` says; assumes that trials are independent and have the same
    share.

    Raises:
      ValueError: no trials, or more successes than trials.
    """
    if not 0 <= successes <= trials or not trials:
        raise ValueError(f"expected 0 to {trials} successes of at least 1 trial, got {successes}")
    found = stats.binomtest(successes, trials).proportion_ci(level, method="exact")
    return float(found.low), float(found.high)
