"""A single update of the optimizer: its inputs, and its expected result in float64.

The first steps from a checkpoint hide parts of an optimizer. AdamW corrects its moments for their
start at zero, which hides the decay of the second moment. Rounding in bf16 hides a learning rate
that is wrong by a few per cent. So one more update starts from typical moments of a late step, with
known gradients. See `optimizers.Optimizer` for the formulas.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np
import numpy.typing as npt

from openxla.benchmark.training.optimizers import Optimizer

Floats = npt.NDArray[np.floating]
# Gives the values of a kind (`weight`, `gradient`, or a slot of the optimizer) for a weight.
Draw = Callable[[str, str, Sequence[int]], Floats]

# By then the bias of AdamW's first moment is gone, but the second moment still has one.
STEPS_BEFORE = 999
# Length of the pattern that fills a weight; an update treats all elements alike.
_PATTERN = 4096
# Number of elements compared in each weight.
COMPARED = 1024
_SCALES = {"weight": 0.05, "gradient": 1e-3, "first": 1e-3, "second": 1e-6, "momentum": 1e-3}
# Tolerance relative to the change, for square roots and quotients of a device, and spacings for
# rounding of the weight itself. Epsilon makes a difference of 1e-2.
_OF_CHANGE, _SPACINGS = 1e-4, 4


def draw(kind: str, name: str, shape: Sequence[int]) -> Floats:
    """Returns float32 numbers of a shape, the same ones for the same kind and name.

    Gradients are exact in bf16, in which a network may compute them.
    """
    return np.resize(_pattern(kind, name), tuple(shape))


def expected(optimizer: Optimizer, name: str, count: int) -> tuple[Floats, Floats]:
    """Returns the first elements of a weight before and after the update, in float64."""

    def given(kind: str) -> Floats:
        return draw(kind, name, (count,)).astype(np.float64)

    rate, decay = optimizer.learning_rate, optimizer.weight_decay
    weight, gradient = given("weight"), given("gradient")
    if optimizer.name == "sgd":
        momentum = optimizer.momentum * given("momentum") + (gradient + decay * weight)
        return weight, weight - rate * momentum
    (beta1, beta2), steps = optimizer.betas, STEPS_BEFORE + 1
    first = beta1 * given("first") + (1 - beta1) * gradient
    second = beta2 * given("second") + (1 - beta2) * gradient**2
    root = np.sqrt(second / (1 - beta2**steps)) + optimizer.epsilon
    return weight, weight * (1 - rate * decay) - rate * first / (1 - beta1**steps) / root


def worst_error(optimizer: Optimizer, after: Mapping[str, Floats]) -> tuple[float, str]:
    """Returns the largest error of weights after the update, and the weight that has it.

    Args:
      optimizer: with the right hyper-parameters.
      after: the first `COMPARED` elements of each weight, in the order of its layout.

    Returns:
      The error relative to the tolerance, above 1 for a wrong update; infinity for NaN.
    """
    worst = (0.0, "")
    for name, found in after.items():
        before, due = expected(optimizer, name, found.size)
        change = np.abs(due - before)
        allowed = _OF_CHANGE * (change + np.sqrt(np.mean(change**2)))
        allowed += _SPACINGS * np.finfo(np.float32).eps * np.abs(due)
        errors = np.abs(found.astype(np.float64).ravel() - due) / allowed
        share = float(np.max(errors, initial=0.0))
        worst = max(worst, (np.inf if np.isnan(share) else share, name))
    return worst


def _pattern(kind: str, name: str) -> Floats:
    seed = int.from_bytes(hashlib.sha256(f"{kind}/{name}".encode()).digest()[:8])
    random = np.random.Generator(np.random.Philox(seed))
    if kind == "second":
        return (_SCALES[kind] * random.uniform(0.25, 1, _PATTERN)).astype(np.float32)
    values = (_SCALES[kind] * random.standard_normal(_PATTERN)).astype(np.float32)
    return values.astype(ml_dtypes.bfloat16).astype(np.float32) if kind == "gradient" else values
