"""In which layer do two implementations of one model begin to differ?

Each runs in float64 and gives what its layers give, by the checkpoint's names (`intermediates`).
Where both are right these agree to some twelve digits, layer by layer; from the first mistake on
they do not, since what follows computes with it. So the first layer that differs, in the order of
execution, has the mistake in it or right before it: behind the last one that agrees.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from openxla.benchmark.artifacts import arrays

# Largest difference, relative to the layer's root mean square, of two that compute the same: what
# the agreement of whole models is held to.
TOLERANCE = 1e-9

Array = npt.NDArray[Any]


@attrs.frozen(kw_only=True)
class Trace:
    """What the layers of one implementation gave, in the order of execution, and its outputs."""

    layers: Mapping[str, Path]
    outputs: Sequence[Path]


@attrs.frozen(kw_only=True)
class Drift:
    """What came of comparing two implementations of a workload; plain JSON values.

    Attributes:
      label: of the row.
      reference: framework of the implementation that is compared with: it made the truth, if one
        of the two did.
      candidate: framework of the other one.
      output_error: largest relative difference of the outputs; None where there were none.
      compared: how many layers both have.
      not_comparable: how many of these differ in shape.
      first: the first layer that differs; None if all agree, or the outputs do.
      first_error: its relative difference.
      last_good: the last layer before it that agrees.
      problem: why there is nothing to tell.
    """

    label: str
    reference: str
    candidate: str
    output_error: float | None = None
    compared: int = 0
    not_comparable: int = 0
    first: str | None = None
    first_error: float | None = None
    last_good: str | None = None
    problem: str | None = None

    def __str__(self) -> str:
        what = f"{self.label}: {self.reference} and {self.candidate}"
        if self.problem is not None:
            return f"{what} were not compared: {self.problem}"
        if self.output_error is None or self.output_error > TOLERANCE:
            off = "cannot be compared" if self.output_error is None else f"{self.output_error:.1e}"
            if self.first is None:
                return (
                    f"{what} differ in their outputs ({off}) but in none of the {self.compared} "
                    "layers that both have; check what they compute outside of these layers"
                )
            after = f"after {self.last_good}" if self.last_good else "from the start"
            return (
                f"{what} drift apart {after}: the first layer that differs is {self.first} "
                f"({self.first_error:.1e}; outputs {off}), in float64"
            )
        return (
            f"{what} agree in float64 ({self.output_error:.1e}, {self.compared} layers): if an "
            "output is wrong, the compiler or the data type is the cause"
        )


def compare(label: str, names: tuple[str, str], reference: Trace, candidate: Trace) -> Drift:
    """Compares two traces layer by layer, in the candidate's order.

    A layer counts as the first that differs only if the outputs do, too: some layers have a
    different meaning in two frameworks, and no consequence.
    """
    outputs = [
        difference(arrays.load(theirs, memory_map=True), arrays.load(ours, memory_map=True))
        for ours, theirs in zip(candidate.outputs, reference.outputs, strict=False)
    ]
    known = [error for error in outputs if error is not None]
    comparable = len(known) == len(candidate.outputs) == len(reference.outputs) and known
    output_error = max(known) if comparable else None
    common = [name for name in candidate.layers if name in reference.layers]
    not_comparable = 0
    first = last_good = first_error = None
    for name in common:
        error = difference(
            arrays.load(reference.layers[name], memory_map=True),
            arrays.load(candidate.layers[name], memory_map=True),
        )
        if error is None:
            not_comparable += 1
        elif error <= TOLERANCE:
            last_good = name
        elif output_error is None or output_error > TOLERANCE:
            first, first_error = name, error
            break
    return Drift(
        label=label,
        reference=names[0],
        candidate=names[1],
        output_error=output_error,
        compared=len(common),
        not_comparable=not_comparable,
        first=first,
        first_error=first_error,
        last_good=last_good,
    )


def difference(reference: Array, candidate: Array) -> float | None:
    """Returns the largest difference over the reference's root mean square; None for other shapes.

    Pictures may have their channels last in one of the two, and matrices may be flattened.
    """
    forms = [candidate] if candidate.shape == reference.shape else []
    if candidate.ndim == 4:
        forms += [candidate.transpose(0, 3, 1, 2), candidate.transpose(0, 2, 3, 1)]
    if not forms and candidate.size == reference.size:
        forms.append(candidate.reshape(reference.shape))
    errors = [
        _largest(reference, form) for form in forms if form.shape == reference.shape and form.size
    ]
    return min(errors, default=None)


def _largest(reference: Array, candidate: Array) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        scale = float(np.sqrt(np.mean(np.square(reference, dtype=np.float64))))
        off = np.abs(candidate.astype(np.float64) - reference.astype(np.float64))
        largest = float(off.max())
    if np.isnan(largest):
        return float("inf")
    return largest / scale if scale else (0.0 if largest == 0 else float("inf"))
