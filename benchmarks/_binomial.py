"""Exact confidence interval of a share."""

from scipy import stats


def share_interval(successes: int, trials: int, *, level: float = 0.95) -> tuple[float, float]:
    """Returns the limits of the share that `successes` out of `trials` estimate.

    Clopper & Pearson, "The use of confidence or fiducial limits" (Biometrika 26, 1934). The
    interval contains the true share with at least the probability `level`. Trials must be
    independent and have the same probability of success.

    Raises:
      ValueError: no trials, or more successes than trials.
    """
    if not 0 <= successes <= trials or not trials:
        raise ValueError(f"expected 0 to {trials} successes of at least 1 trial, got {successes}")
    found = stats.binomtest(successes, trials).proportion_ci(level, method="exact")
    return float(found.low), float(found.high)
