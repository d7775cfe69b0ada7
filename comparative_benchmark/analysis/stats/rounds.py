"""Tests whether a program kept its speed through the measured rounds.

`steadiness` tests the warm-up before anything counts; a falling clock, a cache that fills or memory
that runs out has an effect later. This compares the later rounds of each process with the earlier
ones, over all processes: a change in a single process is part of the spread between them.
"""

import math
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

# Block medians in logarithms, by round.
Rounds = Mapping[int, float]

_FEWEST_ROUNDS = 8
# Shares of the rounds after which to test for a change; only a few, as each is one more test.
_SPLITS = (0.5, 0.125, 0.25, 0.75, 0.875)
_FEWEST_OF_PART = 3
# Simulated with the stopping rule of races (`benchmarks/steady_rounds.py`): of 3,000 steady ones in
# each kind of noise none is reported as unsteady; steps by 5 % in noise of 1 % are found in at
# least 99.8 %.
_STANDARD_ERRORS = 4.0
# Smaller changes do not count, however significant they are.
_LEAST_CHANGE = 0.02


@attrs.frozen(kw_only=True)
class Change:
    """The difference between later and earlier rounds.

    Attributes:
      split: share of the rounds that are the earlier ones.
      log_ratio: mean over processes of later minus earlier, in logarithms of the latency.
      standard_errors: the same in units of its own error.
      agreed: whether it has the same sign in each process.
    """

    split: float
    log_ratio: float
    standard_errors: float
    agreed: bool

    @property
    def is_real(self) -> bool:
        """Whether the program was unsteady."""
        return (
            self.agreed
            and abs(self.log_ratio) > _LEAST_CHANGE
            and abs(self.standard_errors) > _STANDARD_ERRORS
        )


def change(processes: Sequence[Sequence[float]], split: float = 0.5) -> Change | None:
    """Returns how the later rounds differ from the earlier ones; None for too few rounds.

    The split-half test of `steadiness`, over several processes at once. The error is the error of
    means of rounds around the mean of their part, pooled over processes. Rounds of one process
    resemble their predecessors, which makes means of them less certain: by (1 + r) / (1 - r) for
    noise of first order and correlation r (Priestley, Spectral Analysis and Time Series, 1981,
    5.3.2). r is the correlation of neighbouring rounds, corrected because each part is centred on
    its own mean.

    Args:
      processes: the logarithm of each block's median, in the order of the rounds.
      split: share of the rounds that are the earlier ones; each part has at least three.
    """
    long_enough = [np.asarray(p, dtype=np.float64) for p in processes if len(p) >= _FEWEST_ROUNDS]
    if not long_enough:
        return None
    changes, squares, products, degrees, variance = [], 0.0, 0.0, 0, 0.0
    shortest = min(len(values) // 2 for values in long_enough)
    for values in long_enough:
        later = len(values) - _FEWEST_OF_PART
        cut = min(max(round(split * len(values)), _FEWEST_OF_PART), later)
        parts = values[:cut], values[cut:]
        changes.append(float(parts[1].mean() - parts[0].mean()))
        for rest in (part - part.mean() for part in parts):
            squares += float(rest @ rest)
            products += float(rest[1:] @ rest[:-1])
        degrees += len(values) - 2
        variance += sum(1 / len(part) for part in parts)
    mean = math.fsum(changes) / len(changes)
    correlation = (products / squares if squares else 0.0) + 1 / shortest
    correlation = min(max(correlation * shortest / (shortest - 1), 0.0), 0.9)
    inflation = (1 + correlation) / (1 - correlation)
    error = math.sqrt(squares / degrees * inflation * variance) / len(changes)
    return Change(
        split=split,
        log_ratio=mean,
        standard_errors=mean / error if error else math.copysign(math.inf, mean),
        agreed=all(value * mean > 0 for value in changes),
    )


def why_not_steady(
    processes: Sequence[Rounds], rivals: Sequence[Sequence[Rounds]] = ()
) -> str | None:
    """Returns why a program did not keep its speed; None if it did or if that is unknown.

    If rivals were measured in alternation, it must have changed relative to them, too, in the same
    direction: common changes are the machine's.

    Args:
      processes: blocks of the program by round.
      rivals: for each process, the blocks of rivals that were measured alternately.
    """
    alone = [_in_order(rounds) for rounds in processes]
    beside = [_relative(*pair) for pair in zip(processes, rivals, strict=True)] if rivals else []
    found = [_found(alone, beside, split) for split in _SPLITS]
    own, relative = max(filter(None, found), key=_certainty, default=(None, None))
    if own is None:
        return None
    last, off = f"the last {1 - own.split:.0%} of the rounds", math.expm1(own.log_ratio)
    said = f"{last} differ by {off:+.1%} from the earlier ones"
    if relative is None:
        return said
    return f"{said}, and by {math.expm1(relative.log_ratio):+.1%} relative to its rivals"


def _found(
    alone: Sequence[Sequence[float]], beside: Sequence[Sequence[float]], split: float
) -> tuple[Change, Change | None] | None:
    """Returns a real change at a split, by itself and against rivals; None without one."""
    own = change(alone, split)
    if own is None or not own.is_real:
        return None
    if not any(beside):
        return own, None
    relative = change(beside, split)
    if relative is None or not relative.is_real or relative.log_ratio * own.log_ratio < 0:
        return None
    return own, relative


def _certainty(found: tuple[Change, Change | None]) -> float:
    return abs(found[0].standard_errors)


def _in_order(rounds: Rounds) -> list[float]:
    return [rounds[index] for index in sorted(rounds)]


def _relative(own: Rounds, rivals: Sequence[Rounds]) -> list[float]:
    """Returns each round minus the median of the rivals, each around its own mean."""
    centred = [
        {index: value - math.fsum(rounds.values()) / len(rounds) for index, value in rounds.items()}
        for rounds in rivals
        if rounds
    ]
    found = []
    for index in sorted(own):
        beside = [rounds[index] for rounds in centred if index in rounds]
        if beside:
            found.append(own[index] - float(np.median(beside)))
    return found
