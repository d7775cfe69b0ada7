"""How a public Keras model gets the weights of our checkpoints."""

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from _weights import Arrays

# Pattern in the path of a variable, and what our checkpoint has instead.
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
      output: takes the output that ours has from those of the model.
    """

    model: Any
    inputs: Any
    output: Callable[[Any], Any] = lambda outputs: outputs


def port(network: Any, weights: Arrays, renaming: Renaming) -> None:
    """Sets the variables of a model; those whose path becomes empty stay as they are.

    Raises:
      KeyError: a variable has no counterpart.
      ValueError: weights are left over.
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
    # Keras splits heads off, and has depthwise kernels the other way round: the same numbers in
    # the same order.
    variable.assign(np.reshape(value, variable.shape))


def channels_last(pictures: Any) -> Any:
    return np.ascontiguousarray(pictures.transpose(0, 2, 3, 1))


def hub() -> Any:
    return importlib.import_module("keras_hub").models
