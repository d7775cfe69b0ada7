"""Effects of the machine between two files: on all programs, on one file, from run to run."""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.noise_floor import FEWEST_FOR_95
from comparative_benchmark.stats.analysis import NOISE_THRESHOLD

# Fewer comparisons, or a single backend, may share another reason than the machine.
_FEWEST_MOVED, _FEWEST_BACKENDS = 3, 2
# Share of the comparisons that may have moved the other way.
_MOST_APART = 0.1
# A ratio beyond the common move by this factor needs another explanation.
_OWN_REASON = 2.0
_FEWEST_RUNS = 3


def common_move(moved: Iterable[tuple[str, float]]) -> float:
    """Returns the logarithm of the ratio by which everything moved; 0 if not everything did.

    Backends have neither compiler nor runtime in common. Where each is slower, or each is faster,
    beyond the noise threshold, the machine is the likely reason. The median over all comparisons.

    Args:
      moved: backend and log ratio of each comparison of the two files.
    """
    by_backend: defaultdict[str, list[float]] = defaultdict(list)
    for backend, log in moved:
        by_backend[backend].append(log)
    logs = [log for group in by_backend.values() for log in group]
    if len(by_backend) < _FEWEST_BACKENDS or len(logs) < _FEWEST_MOVED:
        return 0.0
    medians = [statistics.median(group) for group in by_backend.values()]
    sign = math.copysign(1.0, medians[0])
    apart = sum(sign * log <= 0 for log in logs)
    if min(sign * m for m in medians) <= math.log1p(NOISE_THRESHOLD):
        return 0.0
    return statistics.median(logs) if apart <= _MOST_APART * len(logs) else 0.0


def is_of_move(log: float, move: float) -> bool:
    """Tells whether a log ratio lies within twice the common move, on the same side."""
    return 0 < log * math.copysign(1.0, move) <= _OWN_REASON * abs(move)


def contended_side(old: Case, new: Case) -> str:
    """Returns which of two cases others disturbed, if they disturbed one; else empty."""
    before, after = (_is_contended(case) for case in (old, new))
    if before is None or after is None or before == after:
        return ""
    return "baseline" if before else "candidate"


def _is_contended(case: Case) -> bool | None:
    found = case.metrics.contention
    return found.contended if found else None


def run_to_run(runs: Sequence[tuple[float, Mapping[str, str]]]) -> float:
    """Returns the relative difference that successive runs of a case show without a reason.

    The 95 % quantile of their ratios, of those with the same packages; the largest of fewer than
    ten, and 0 for fewer than three.

    Args:
      runs: latency in ms and package versions of each, the oldest first.
    """
    changes = [
        abs(math.log(after / before))
        for (before, versions), (after, later) in itertools.pairwise(runs)
        if versions == later
    ]
    if len(changes) < _FEWEST_RUNS:
        return 0.0
    share = 0.95 if len(changes) >= FEWEST_FOR_95 else 1.0
    return math.expm1(float(np.quantile(changes, share)))
