"""Copies the weights of our checkpoints into public Keras models."""

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from _weights import Arrays

# Pattern in the path of a variable, and its replacement, which gives the name in our checkpoint.
Renaming = Sequence[tuple[str, str | Callable[[re.Match[str]], str]]]

_SUFFIXES: Renaming = (
    (r"/(kernel|gamma|embeddings|weight)$", ".weight"),
    (r"/(bias|beta)$", ".bias"),
    (r"/moving_mean$", ".running_mean"),
    (r"/moving_variance$", ".running_var"),
)


@attrs.frozen
class KerasProgram:
    """A Keras model and its inputs.

    Attributes:
      model: the model, or a layer.
      inputs: one array, or arrays by name.
      output: returns the output that matches our model's.
    """

    model: Any
    inputs: Any
    output: Callable[[Any], Any] = lambda outputs: outputs


def port(network: Any, weights: Arrays, renaming: Renaming) -> None:
    """Sets the variables of a model, except those whose path becomes empty.

    Raises:
      KeyError: a variable has no counterpart.
      ValueError: the model does not use all weights.
    """
    left = set(weights)
    for variable in network.weights:
        name = variable.path
        for pattern, ours in (*renaming, *_SUFFIXES):
            name = re.sub(pattern, ours, name)
        if name:
            assign(variable, weights[name])
            left.discard(name)
    if left:
        raise ValueError(f"{network.name} did not accept {', '.join(sorted(left)[:8])}")


def assign(variable: Any, value: Any) -> None:
    # Keras has separate axes for heads, and swaps axes of depthwise kernels. The numbers have the
    # same order.
    variable.assign(np.reshape(value, variable.shape))


def channels_last(pictures: Any) -> Any:
    return np.ascontiguousarray(pictures.transpose(0, 2, 3, 1))


def hub() -> Any:
    return importlib.import_module("keras_hub").models
