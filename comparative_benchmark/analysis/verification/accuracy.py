"""Accuracy of a program on its model's task: pure functions of its outputs.

Accuracy does not determine the status; limits and signal do, which detect far smaller errors. It
expresses the effect of an error in the task's own metric.

The interval of a share is Wilson's (1927, "Probable inference"), the interval of a mean over
examples is normal. Both are wide with hundreds of examples. Pairs show the effect of fewer bits far
better, because program and float64 model see the same examples: how many classes changed, in which
direction (McNemar 1947), and the mean difference of the losses of each text.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import attrs
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from openxla.benchmark.models.trained import Task

LEVEL = 0.95
# The quantile of the normal distribution for this level.
_Z = 1.959963984540054
# A larger perplexity carries no more information than this one.
_LARGEST_EXPONENT = 600.0
_Share = Annotated[float, Meta(ge=0, le=1e300)]
_Count = Annotated[int, Meta(ge=0)]


@attrs.frozen(kw_only=True)
class Accuracy:
    """A program's accuracy on the held-out examples of its model's task.

    Attributes:
      task: short description of the task.
      metric: `top-1`, the fraction of correct classes, or `perplexity` of next-token predictions.
      value: the program's value; None if it is not finite.
      reference: the float64 model's value on the same examples.
      examples: number of examples; for texts, number of predicted tokens.
      lost, gained: for classes, number of examples that only the float64 model, or only the
        program, classifies correctly; None for perplexity.
      changed: for classes, number of examples that program and float64 model classify differently.
      low, high: limits of the 95 % interval for `value`, over examples.
      ratio, ratio_low, ratio_high: for perplexity, its ratio to the float64 model's perplexity, and
        the limits of its 95 % interval.
      most_lost: maximum allowed loss relative to the float64 model, see `loss`; None if not
        recorded.
    """

    task: str
    metric: Literal["top-1", "perplexity"]
    value: _Share | None
    reference: _Share
    examples: _Count
    lost: _Count | None = None
    gained: _Count | None = None
    changed: _Count | None = None
    low: _Share | None = None
    high: _Share | None = None
    ratio: _Share | None = None
    ratio_low: _Share | None = None
    ratio_high: _Share | None = None
    most_lost: _Share | None = None

    @property
    def loss(self) -> float | None:
        """The loss of accuracy: a difference of shares, or a perplexity's relative increase."""
        if self.value is None:
            return None
        if self.metric == "top-1":
            return self.reference - self.value
        return self.value / self.reference - 1

    @property
    def loses_too_much(self) -> bool:
        """Whether it is worse by more than the task allows, or has no value at all."""
        if self.most_lost is None:
            return False
        # A share is a quotient of integers: tolerate rounding, so that the limit itself is allowed.
        return self.loss is None or self.loss > self.most_lost + 1e-9

    def __str__(self) -> str:
        if self.value is None:
            return "not finite"
        return f"{self.value:.1%}" if self.metric == "top-1" else f"{self.value:.4g}"


def judge(task: Task, outputs: Sequence[npt.NDArray[Any]]) -> Accuracy:
    """Returns the accuracy of outputs.

    Args:
      task: the task whose examples, in order, were the inputs.
      outputs: for each batch the first output: logits [batch, classes] or [batch, seq, vocabulary],
        or hidden states [batch, seq, hidden] if the task has a head.
    """
    values = np.concatenate([value.astype(np.float64) for value in outputs])
    if task.metric == "perplexity":
        return _perplexity(task, values)
    return _top_1(task, values)


def _top_1(task: Task, scores: npt.NDArray[np.float64]) -> Accuracy:
    examples, count = task.examples, len(scores)
    if "head" in examples:
        # Classify the mean of a row's hidden states, without padding.
        places = np.arange(scores.shape[1]) < examples["lengths"][:count, None]
        means = (scores * places[..., None]).sum(1) / places.sum(1)[:, None]
        scores = means @ examples["head"].T + examples["bias"]
    labels = examples["labels"][:count]
    right = (scores.argmax(1) == labels) & np.isfinite(scores).all(1)
    predicted = examples["predicted"][:count]
    expected = predicted == labels
    low, high = _wilson(int(right.sum()), count)
    return Accuracy(
        task=task.name,
        metric="top-1",
        value=float(right.mean()),
        low=low,
        high=high,
        reference=float(expected.mean()),
        examples=count,
        lost=int((expected & ~right).sum()),
        gained=int((right & ~expected).sum()),
        changed=int(((scores.argmax(1) != predicted) | ~np.isfinite(scores).all(1)).sum()),
        most_lost=task.most_lost,
    )


def _perplexity(task: Task, logits: npt.NDArray[np.float64]) -> Accuracy:
    examples, count = task.examples, len(logits)
    tokens = examples["tokens"][:count, 1:].astype(np.int64)
    before = logits[:, :-1]
    largest = before.max(-1, keepdims=True)
    with np.errstate(invalid="ignore", over="ignore"):
        sums = largest[..., 0] + np.log(np.exp(before - largest).sum(-1))
        losses = sums - np.take_along_axis(before, tokens[..., None], -1)[..., 0]
        value = float(np.exp(losses.mean()))
    expected, rows = examples["losses"][:count], losses.mean(1)
    accuracy = Accuracy(
        task=task.name,
        metric="perplexity",
        value=value if np.isfinite(value) else None,
        reference=float(np.exp(expected.mean())),
        examples=losses.size,
        most_lost=task.most_lost,
    )
    if accuracy.value is None or count == 1:
        return accuracy
    # Rows have the same length, so the mean of their means is the mean of all losses.
    low, _, high = _exponential_mean(rows)
    least, ratio, most = _exponential_mean(rows - expected)
    return attrs.evolve(accuracy, low=low, high=high, ratio=ratio, ratio_low=least, ratio_high=most)


def _wilson(right: int, count: int) -> tuple[float, float]:
    """Returns the interval of a share."""
    share, z2 = right / count, _Z * _Z
    middle = share + z2 / (2 * count)
    half = _Z * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    scale = 1 + z2 / count
    return max((middle - half) / scale, 0.0), min((middle + half) / scale, 1.0)


def _exponential_mean(values: npt.NDArray[np.float64]) -> list[float]:
    """Returns the exponential of a mean, between the limits of its interval."""
    mean, half = values.mean(), _Z * values.std(ddof=1) / math.sqrt(len(values))
    limits = np.minimum([mean - half, mean, mean + half], _LARGEST_EXPONENT)
    return [float(value) for value in np.exp(limits)]
