"""A second input of the same shapes, made from the first.

A timed program runs repeatedly on one input. A program that was constant-folded for this input,
caches its result, keeps state, or ignores an input still returns the right output for it, but not
for another input.

The rule, for each array:

  mask      only 0 and 1, in integers or booleans: the last 1 of each row becomes 0, if the row has
            another one; so the second mask hides a position that the first one showed
  integers  the last axis is reversed: values keep their range, as tokens must
  numbers   the last axis is reversed

If this leaves an array unchanged (one element in the last axis, or a constant), integers above 0
are decreased by 1, and other numbers are halved. Masks stay unchanged then. Models for which this
rule gives meaningless inputs define `second_inputs(*inputs)`.

An output may still be unchanged, e.g. a mean over the last axis. Then further inputs are tried:
elements in another order, numbers of another scale, and elements drawn with repetition. All keep
the range of the values, as ids and masks require.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


_SEED = 0


class NoSecondInputError(ValueError):
    """The inputs cannot be changed, or a model's own second inputs have another form."""


def second_inputs(model: Any, inputs: Sequence[Array]) -> list[Array]:
    """Returns the second input of a model, of the shapes and types of the first.

    Args:
      model: the model; its `second_inputs(*inputs)` is used if defined.
      inputs: the first, one array for each argument.

    Raises:
      NoSecondInputError: the result would equal the first input, or has other shapes or types.
    """
    own: Callable[..., Any] | None = getattr(model, "second_inputs", None)
    if own is None:
        second = [changed(value) for value in inputs]
    else:
        second = [np.asarray(value) for value in own(*inputs)]
        if _forms(second) != _forms(inputs):
            raise NoSecondInputError("`second_inputs` must not change shapes or types")
    if all(map(_same, inputs, second)):
        raise NoSecondInputError("the second input equals the first, e.g. because all values are 0")
    return second


def further_inputs(inputs: Sequence[Array], attempt: int) -> list[Array]:
    """Returns another input of the same shapes and types, for outputs unchanged by the second.

    Args:
      inputs: the first input, one array per argument.
      attempt: index into `FURTHER_RULES`.

    Raises:
      NoSecondInputError: the result would equal the first input.
    """
    random = np.random.Generator(np.random.Philox([_SEED, attempt]))
    changed = [FURTHER_RULES[attempt](value, random) for value in inputs]
    if all(map(_same, inputs, changed)):
        raise NoSecondInputError("the additional input would equal the first")
    return changed


def _permuted(values: Array, random: np.random.Generator) -> Array:
    shuffled = random.permutation(values.reshape(-1)).reshape(values.shape)
    return changed(values) if _same(values, shuffled) else shuffled


def _scaled(values: Array, random: np.random.Generator) -> Array:
    """Returns numbers from the upper half of their range; other types unchanged."""
    if values.dtype.kind in "iub" or not values.size:
        return values
    wide = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
    finite = wide[np.isfinite(wide)]
    high = finite.max() if finite.size else 0.0
    if finite.size and finite.min() == high:
        return np.asarray(random.uniform(0, np.abs(high) or 1, values.shape), values.dtype)
    return np.asarray(0.5 * (wide + high), values.dtype)


def _drawn(values: Array, random: np.random.Generator) -> Array:
    if not values.size:
        return values
    flat = values.reshape(-1)
    return flat[random.integers(flat.size, size=flat.size)].reshape(values.shape)


# Tried in this order.
FURTHER_RULES = (_permuted, _scaled, _drawn)


def changed(values: Array) -> Array:
    """Returns the replacement of an array, by the rule of this module."""
    if _is_mask(values):
        return _shortened(values)
    backwards = values[..., ::-1].copy() if values.ndim else values
    if not _same(values, backwards):
        return backwards
    if values.dtype.kind in "iu":
        return np.asarray(values - (values > 0), values.dtype)
    return np.asarray(values * values.dtype.type(0.5), values.dtype)


def _is_mask(values: Array) -> bool:
    if values.dtype.kind == "b":
        return True
    return values.dtype.kind in "iu" and bool(np.isin(values, (0, 1)).all())


def _shortened(mask: Array) -> Array:
    """Returns a mask without the last 1 of each row that has two or more."""
    if not (mask.ndim and mask.size):
        return mask
    rows = mask.reshape(-1, mask.shape[-1]).copy()
    for row in rows:
        shown = np.flatnonzero(row)
        if shown.size > 1:
            row[shown[-1]] = 0
    return rows.reshape(mask.shape)


def _forms(values: Sequence[Array]) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    return [(value.shape, value.dtype) for value in values]


def _same(one: Array, other: Array) -> bool:
    return one.tobytes() == other.tobytes()
