"""The usual comparison of two programs: one process of each, one after the other, and a t test.

This is how a simple script compares two loops. It assumes that iterations are independent. It
ignores the spread between processes, and changes of the machine during the comparison.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from comparative_benchmark.analysis.stats.analysis import NOISE_THRESHOLD, Verdict, student_quantile

Array = NDArray[np.float64]
Middle = Callable[[Array], np.floating]

USUAL_METHODS: Mapping[str, Middle] = {"mean": np.mean, "median": np.median}


def middle_ratio(candidate: Array, baseline: Array, middle: Middle) -> float:
    """Returns candidate / baseline for the means or medians of all samples."""
    return float(middle(candidate)) / float(middle(baseline))


def t_test(candidate: Array, baseline: Array, middle: Middle) -> Verdict:
    """Returns the verdict of Welch's test at 5 % for equal numbers of samples.

    A verdict needs p < 0.05, and means or medians that are more than 1 % apart (Welch, Biometrika
    34, 1947). It is often wrong because samples are not independent.
    """
    errors = [float(np.var(side, ddof=1)) / side.size for side in (candidate, baseline)]
    degrees = sum(errors) ** 2 / sum(error**2 / (candidate.size - 1) for error in errors)
    score = float(candidate.mean() - baseline.mean()) / math.sqrt(sum(errors))
    ratio = middle_ratio(candidate, baseline, middle)
    beyond = max(ratio, 1 / ratio) > 1 + NOISE_THRESHOLD
    if abs(score) < student_quantile(0.975, round(degrees)) or not beyond:
        return Verdict.UNCLEAR
    return Verdict.SLOWER if ratio > 1 else Verdict.FASTER
