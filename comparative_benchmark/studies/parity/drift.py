"""Finds the first layer in which two implementations of a model differ.

Each implementation runs in float64 and records the outputs of its layers, by the checkpoint's names
(`intermediates`). Correct layers agree to about twelve digits. After the first error, layers differ
because they depend on it. So the error is in the first layer that differs, in execution order, or
between it and the last one that agrees.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from openxla.benchmark.artifacts import arrays

# Largest difference between equivalent layers, relative to the root mean square; the same limit as
# for the agreement of whole models.
TOLERANCE = 1e-9

Array = npt.NDArray[Any]


@attrs.frozen(kw_only=True)
class Trace:
    """Outputs of the layers of one implementation, in execution order, and of the model."""

    layers: Mapping[str, Path]
    outputs: Sequence[Path]


@attrs.frozen(kw_only=True)
class Drift:
    """Comparison of two implementations of a workload; plain JSON values.

    Attributes:
      label: label of the row.
      reference: framework of the reference implementation, which produced the truth if one of the
        two did.
      candidate: framework of the other implementation.
      output_error: largest relative difference of the outputs; None if not comparable.
      compared: number of layers in both.
      not_comparable: number of these that differ in shape.
      first: the first layer that differs; None if all layers or the outputs agree.
      first_error: its relative difference.
      last_good: the last layer before it that agrees.
      problem: why they were not compared.
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

    A differing layer is reported only if the outputs also differ, because some layers have
    different meanings in two frameworks without affecting the outputs.
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
    """Returns the largest difference over the reference's root mean square.

    Returns None if the shapes are incompatible. Channels may be last in one of two images, and
    matrices may be flattened.
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
