"""What the worker asks of a model: it may be anyone's, so what it gives is checked.

What a model has, and what of it is optional: `openxla.benchmark.models.model_interfaces`.
"""

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from comparative_benchmark.backends.api import Array


def checked_array(value: Any, source: str) -> Array:
    """Returns the value as an array of numbers, or raises TypeError naming where it is from."""
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind in "USmM":
        raise TypeError(f"{source} gave a {type(value).__name__}, which is not an array of numbers")
    return array


def check_arity(model: Any, inputs: Sequence[Any]) -> None:
    """Raises TypeError when `forward` cannot take that many inputs."""
    if error := mismatch(model.forward, inputs):
        raise TypeError(
            f"preprocess gives {len(inputs)} inputs, which forward cannot take: {error}"
        )


def mismatch(function: Callable[..., Any], arguments: Sequence[Any]) -> str | None:
    """Returns why a function cannot be called with so many arguments; None if it can.

    None as well where that cannot be known: some callables hide their signature.
    """
    signature: inspect.Signature | None = None
    with contextlib.suppress(ValueError, TypeError):
        signature = inspect.signature(function)
    if signature is None:
        return None
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return f"{function.__name__}{signature}: {error}"
    return None
