"""Adapts attention masks for int8 files, by replacing the lowest float32 number.

Masks contain the lowest float32 number. In an int8 file a tensor has one range of 255 steps: with
-3.4e38 in it, all scores round to the same value. Scores are of order one to ten, and an int8
softmax returns 0 for a score six below the largest.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

MASK = -32.0


def clamp_saved_model(directory: Path) -> int:
    """Replaces the lowest float32 number in the constants of a SavedModel.

    The result of `jax2tf` is an opaque program without constants that TensorFlow could see: use
    `clamp_jax`.

    Returns:
      The number of constants that contained it.
    """
    import tensorflow as tf
    from tensorflow.core.framework import types_pb2
    from tensorflow.core.protobuf import saved_model_pb2

    path, clamped = directory / "saved_model.pb", 0
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for graph in (meta.graph_def for meta in saved.meta_graphs):
        functions = (function.node_def for function in graph.library.function)
        for node in itertools.chain(graph.node, *functions):
            if node.op != "Const" or node.attr["dtype"].type != types_pb2.DT_FLOAT:
                continue
            tame, found = _tame(tf.make_ndarray(node.attr["value"].tensor))
            if found:
                clamped += 1
                node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(tame))
    path.write_bytes(saved.SerializeToString(deterministic=True))
    return clamped


def clamp_jax(
    function: Callable[..., Any], told: Callable[[int], None] = lambda _: None
) -> Callable[..., Any]:
    """Returns a JAX function with the lowest float32 number replaced in its constants.

    Args:
      function: function of pytrees of arrays; traced whenever the result is called.
      told: called on each trace with the number of constants that contained the number.
    """
    import jax
    from jax.extend.core import jaxpr_as_fun

    def call(*arguments: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        tamer = _JaxprTamer()
        outputs = jaxpr_as_fun(tamer.tame(closed))(*jax.tree.leaves(arguments))
        told(tamer.count)
        return jax.tree.unflatten(jax.tree.structure(shapes), outputs)

    return call


class _JaxprTamer:
    """Rewrites JAX programs, including nested ones; `count` is the number of changed constants."""

    def __init__(self) -> None:
        self.count = 0

    def tame(self, part: Any) -> Any:
        """Returns a part of a program (a jaxpr, closed or not, a parameter) without the number."""
        from jax.extend.core import ClosedJaxpr, Jaxpr

        if isinstance(part, ClosedJaxpr):
            return part.replace(
                jaxpr=self.tame(part.jaxpr), consts=[self._value(value) for value in part.consts]
            )
        if isinstance(part, Jaxpr):
            return part.replace(
                eqns=[self._equation(equation) for equation in part.eqns],
                outvars=[self._atom(atom) for atom in part.outvars],
            )
        if isinstance(part, tuple | list):
            return type(part)(self.tame(item) for item in part) if _holds_programs(part) else part
        return part

    def _equation(self, equation: Any) -> Any:
        return equation.replace(
            invars=[self._atom(atom) for atom in equation.invars],
            params={name: self.tame(value) for name, value in equation.params.items()},
        )

    def _atom(self, atom: Any) -> Any:
        from jax.extend.core import Literal

        if not isinstance(atom, Literal):
            return atom
        value = self._value(atom.val)
        return atom if value is atom.val else Literal(value, atom.aval)

    def _value(self, value: Any) -> Any:
        if getattr(value, "dtype", np.dtype(np.float32)) != np.float32:
            return value
        tame, found = _tame(np.asarray(value, np.float32))
        self.count += found
        return tame if found else value


def _holds_programs(items: Any) -> bool:
    from jax.extend.core import ClosedJaxpr, Jaxpr

    return any(isinstance(item, ClosedJaxpr | Jaxpr) for item in items)


def _tame(values: Any) -> tuple[Any, bool]:
    """Returns values without the lowest float32 number, and whether they contained it."""
    is_least = values == np.finfo(np.float32).min
    if not np.any(is_least):
        return values, False
    return np.where(is_least, np.float32(MASK), values), True
