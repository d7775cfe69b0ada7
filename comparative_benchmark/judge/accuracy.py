"""How well a program does what its model was trained for: pure functions of its outputs.

Accuracy decides no status: limits and signal do, which see far smaller errors. It says what an
error costs in words that people use.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import attrs
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from openxla.benchmark.models.trained import Task

_Share = Annotated[float, Meta(ge=0, le=1e300)]
_Count = Annotated[int, Meta(ge=0)]


@attrs.frozen(kw_only=True)
class Accuracy:
    """What a program reached on the held-out examples of its model's task.

    Attributes:
      task: in a few words.
      metric: `top-1`, a share, or `perplexity`, of the next token.
      value: of the program; None where it is not finite.
      reference: of the float64 model on the same examples.
      examples: how many; texts count each predicted token.
      lost, gained: of classes, examples that only the float64 model has right, and only the
        program. With a perplexity, None.
    """

    task: str
    metric: Literal["top-1", "perplexity"]
    value: _Share | None
    reference: _Share
    examples: _Count
    lost: _Count | None = None
    gained: _Count | None = None

    def __str__(self) -> str:
        if self.value is None:
            return "not finite"
        return f"{self.value:.1%}" if self.metric == "top-1" else f"{self.value:.4g}"


def judge(task: Task, outputs: Sequence[npt.NDArray[Any]]) -> Accuracy:
    """Returns what outputs are worth.

    Args:
      task: whose examples, in order, gave them.
      outputs: of each batch the first output: logits [batch, classes] or [batch, seq, vocabulary],
        or hidden states [batch, seq, hidden] where the task has a head.
    """
    found = np.concatenate([value.astype(np.float64) for value in outputs])
    if task.metric == "perplexity":
        return _perplexity(task, found)
    return _top_1(task, found)


def _top_1(task: Task, found: npt.NDArray[np.float64]) -> Accuracy:
    examples, count = task.examples, len(found)
    if "head" in examples:
        # Classes are read from the mean of what the places of a row hold that are no padding.
        places = np.arange(found.shape[1]) < examples["lengths"][:count, None]
        means = (found * places[..., None]).sum(1) / places.sum(1)[:, None]
        found = means @ examples["head"].T + examples["bias"]
    labels = examples["labels"][:count]
    right = (found.argmax(1) == labels) & np.isfinite(found).all(1)
    due = examples["predicted"][:count] == labels
    return Accuracy(
        task=task.name,
        metric="top-1",
        value=float(right.mean()),
        reference=float(due.mean()),
        examples=count,
        lost=int((due & ~right).sum()),
        gained=int((right & ~due).sum()),
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
    return Accuracy(
        task=task.name,
        metric="perplexity",
        value=value if np.isfinite(value) else None,
        reference=float(np.exp(examples["losses"][:count].mean())),
        examples=losses.size,
    )
