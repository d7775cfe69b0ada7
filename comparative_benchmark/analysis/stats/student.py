"""Student's t without a statistics package: its quantiles and its tail."""

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

# Beyond this many degrees of freedom t is normal for every purpose here.
_NORMAL_FROM = 1e4


@lru_cache(maxsize=1024)
def student_quantile(probability: float, degrees: float) -> float:
    """Returns the quantile of Student's t for a probability of at least 0.5.

    With t = sqrt(df) tan(angle) the distribution is the integral of cos(angle)^(df - 1) (Abramowitz
    & Stegun 26.7), computed by Gauss-Legendre and inverted by bisection: exact to 1e-9 for any real
    number of degrees of freedom of at least 1.
    """
    if degrees > _NORMAL_FROM:
        return NormalDist().inv_cdf(probability)
    nodes, weights = _gauss_legendre()
    target = (probability - 0.5) / _density_at_zero(degrees)
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        half = (low + high) / 4
        area = half * float(weights @ np.cos(half * (nodes + 1)) ** (degrees - 1))
        low, high = (2 * half, high) if area < target else (low, 2 * half)
    return math.sqrt(degrees) * math.tan(low)


def student_tail(distance: float, degrees: float) -> float:
    """Returns P(T > distance), with a small relative error far out in the tail."""
    first = math.atan(distance / math.sqrt(degrees))
    nodes, weights = _gauss_legendre()
    # With many degrees of freedom there is nothing farther out, and nodes there would be wasted.
    half = min(math.pi / 2 - first, 12 / math.sqrt(degrees)) / 2
    area = half * float(weights @ np.cos(half * (nodes + 1) + first) ** (degrees - 1))
    return area * _density_at_zero(degrees)


def _density_at_zero(degrees: float) -> float:
    """Returns the density of the angle at 0."""
    ratio = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    return math.exp(ratio) / math.sqrt(math.pi)


@lru_cache(maxsize=1)
def _gauss_legendre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(96)
    return nodes, weights
