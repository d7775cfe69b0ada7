"""Layers of flax.nnx models, by wrapping the calls of their modules.

Our models merge graph and weights again in each call (`FlaxModel.apply`), so modules cannot be
hooked beforehand: instead `nnx.merge` is wrapped to see the modules that it creates.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.backends.frameworks import jax_models
from comparative_benchmark.backends.intermediates import Array, Note, layer_of, widened
from openxla.benchmark.models.shared_model import as_tuple

Path = tuple[str | int, ...]


def run(model: Any, inputs: Sequence[Array], note: Note) -> tuple[Any, ...]:
    """Runs a model in float64 and records the output of each layer; returns the outputs."""
    if not hasattr(model, "weight_names"):
        raise UnsupportedError(f"{type(model).__name__} does not say where its weights come from")
    names = {path[:-1]: layer_of(name) for path, name in model.weight_names.items()}
    # Weights of the root do not belong to a layer.
    names.pop((), None)
    found: list[tuple[str, Any]] = []

    def apply(params: Any, *values: Any) -> Any:
        """Returns the outputs, and the outputs of the layers."""
        found.clear()
        with _watched(names, lambda name, value: found.append((name, value))):
            outputs = model.apply(params, *values)
        return as_tuple(outputs), [value for _, value in found]

    with jax.enable_x64(True):
        arguments = jax_models.widened(model.params), *map(jnp.asarray, map(widened, inputs))
        try:
            outputs, values = jax.jit(apply)(*arguments)
        except jax.errors.UnexpectedTracerError:
            # Layers inside a loop of the program have no values outside it, unless JAX runs op by
            # op.
            with jax.disable_jit():
                outputs, values = apply(*arguments)
        for (name, _), value in zip(found, values, strict=True):
            note(name, np.asarray(value))
        return tuple(np.asarray(value) for value in outputs)


@contextmanager
def _watched(names: dict[Path, str], note: Callable[[str, Any], None]) -> Iterator[None]:
    """Records the outputs of modules that `nnx.merge` creates inside the block."""
    merge = nnx.merge
    layers: dict[int, str] = {}
    alive = []  # keeps modules alive, so that ids stay unique
    wrapped: dict[type, Any] = {}

    def watching(*arguments: Any, **options: Any) -> Any:
        root = merge(*arguments, **options)
        alive.append(root)
        for path, module in nnx.iter_modules(root):
            if path in names:
                layers[id(module)] = names[path]
                _wrap(type(module))
        return root

    def _wrap(kind: type) -> None:
        owner = next((base for base in kind.__mro__ if "__call__" in vars(base)), None)
        if owner is None or owner in wrapped:
            return
        call = wrapped[owner] = vars(owner)["__call__"]

        def noting(self: Any, *arguments: Any, **options: Any) -> Any:
            output = call(self, *arguments, **options)
            if id(self) in layers:
                note(layers[id(self)], as_tuple(output)[0])
            return output

        owner.__call__ = noting  # type: ignore[method-assign]

    nnx.merge = watching
    try:
        yield
    finally:
        nnx.merge = merge
        for owner, call in wrapped.items():
            owner.__call__ = call  # type: ignore[method-assign]
