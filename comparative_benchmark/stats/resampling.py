"""The two-level bootstrap under the intervals, and Student's t."""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import attrs
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Processes = Sequence[Sequence[float]]
Array = NDArray[np.float64]

RESAMPLES = 2000
_RESAMPLES_OF_A_PROCESS = 400
_MOST_BATCHES = 48
# No latency, and squares of it would not fit a float.
_MOST_DIGITS = 15


class SampleError(ValueError):
    """Samples that nothing can be said of; the message is the reason, for a person."""


@attrs.frozen(kw_only=True)
class Sampling:
    """Estimate, and how it would scatter over repetitions of the experiment."""

    estimate: float
    deviations: Array
    degrees_of_freedom: float
    processes: int


@lru_cache(maxsize=1024)
def student_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Returns the quantile of Student's t, from 0.5 on; any real degrees of freedom from 1 on.

    With t = sqrt(df) tan(angle) its distribution is the integral of cos(angle)^(df - 1)
    (Abramowitz & Stegun 26.7), taken by Gauss-Legendre and inverted by bisection: exact to 1e-9.
    """
    if degrees_of_freedom > 1e4:
        return NormalDist().inv_cdf(probability)
    nodes, weights = _gauss_legendre()
    power = degrees_of_freedom - 1
    log_constant = math.lgamma((power + 2) / 2) - math.lgamma((power + 1) / 2)
    target = (probability - 0.5) * math.sqrt(math.pi) / math.exp(log_constant)
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        half = (low + high) / 4
        area = half * float(weights @ np.cos(half * (nodes + 1)) ** power)
        low, high = (2 * half, high) if area < target else (low, 2 * half)
    return math.sqrt(degrees_of_freedom) * math.tan(low)


@lru_cache(maxsize=1)
def _gauss_legendre() -> tuple[Array, Array]:
    nodes, weights = np.polynomial.legendre.leggauss(96)
    return nodes, weights


def checked(processes: Processes) -> list[Array]:
    """Returns the samples as arrays, or raises `SampleError` with the reason."""
    if not len(processes) or not all(len(samples) for samples in processes):
        raise SampleError("no samples")
    arrays = []
    for samples in processes:
        try:
            values = np.asarray(samples, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise SampleError("a sample is no number") from None
        if not np.isfinite(values).all():
            raise SampleError("a sample is NaN or infinite")
        if (values <= 0).any():
            raise SampleError("a sample is zero or negative")
        if (np.abs(np.log10(values)) > _MOST_DIGITS).any():
            raise SampleError(f"a sample is beyond 1e{_MOST_DIGITS} ms, or its inverse")
        arrays.append(values)
    if len(arrays) == 1 and arrays[0].size < 2:
        raise SampleError("a single sample")
    return arrays


def bootstrap(groups: list[Array], *, seed: int) -> Sampling:
    """Returns mean of group medians and how it scatters: a two-level bootstrap, resized.

    Processes are drawn with replacement, then blocks of consecutive samples within each (moving
    blocks, Kuensch 1989, so that autocorrelation stays). Left as it is, its variance is wrong
    twice: too small by (K-1)/K for K processes, and too large because the spread of medians holds
    the inner noise already (Davison & Hinkley, "Bootstrap Methods", 1997, 3.8). So it gives the
    shape, and the scale is the unbiased one, sd of the medians / sqrt(K); the interval then widens
    it for K - 1 degrees of freedom. One group has only the inner level.
    """
    # Sorted, so that the order in which processes came does not matter.
    keys = [(_median(values), values.tolist()) for values in groups]
    order = sorted(range(len(groups)), key=keys.__getitem__)
    random = np.random.default_rng(seed)
    count = len(groups)
    medians = np.array([keys[position][0] for position in order])
    pools = np.stack([_resampled_medians(groups[position], random) for position in order])
    picks = random.integers(count, size=(RESAMPLES, count))
    draws = random.integers(_RESAMPLES_OF_A_PROCESS, size=(RESAMPLES, count))
    means = (medians[picks] + pools[picks, draws]).mean(axis=1)
    deviations = means - means.mean()
    if count == 1:
        degrees = math.inf
    else:
        degrees = count - 1.0
        spread = float(np.std(deviations))
        scale = float(np.std(medians, ddof=1)) / math.sqrt(count) / spread if spread else 0.0
        deviations = deviations * scale
    return Sampling(
        estimate=float(medians.mean()),
        deviations=deviations,
        degrees_of_freedom=degrees,
        processes=count,
    )


def _resampled_medians(values: Array, random: np.random.Generator) -> Array:
    """Returns medians of moving-block resamples, less the median of the sample itself.

    Long series are first cut into batches of consecutive samples, each standing by its median.
    """
    if values.size > _MOST_BATCHES:
        values = _batch_medians(values, _MOST_BATCHES)
    size = values.size
    length = math.ceil(size ** (1 / 3))
    starts = random.integers(size - length + 1, size=(_RESAMPLES_OF_A_PROCESS, -(-size // length)))
    blocks = sliding_window_view(values, length).take(starts, axis=0)
    resamples = blocks.reshape(_RESAMPLES_OF_A_PROCESS, -1)[:, :size]
    medians: Array = _row_medians(resamples) - _median(values)
    return medians


def _batch_medians(values: Array, count: int) -> Array:
    """Returns the median of each part of `np.array_split(values, count)`, in two calls."""
    size, longer = divmod(values.size, count)
    cut = longer * (size + 1)
    parts = (values[:cut].reshape(longer, size + 1), values[cut:].reshape(count - longer, size))
    return np.concatenate([_row_medians(part) for part in parts if part.size])


def _row_medians(values: Array) -> Array:
    """Returns `np.median(values, axis=1)` of finite numbers: short rows are sorted much faster."""
    ordered = np.sort(values, axis=1)
    half = values.shape[1] // 2
    if values.shape[1] % 2:
        return ordered[:, half].copy()
    middle: Array = (ordered[:, half - 1] + ordered[:, half]) / 2
    return middle


def _median(values: Array) -> float:
    return float(_row_medians(values[None])[0])
