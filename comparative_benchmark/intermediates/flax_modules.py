"""Layers of flax.nnx models, by wrapping the calls of their modules.

Our models merge graph and weights anew in each call (`FlaxModel.apply`), so modules can not be
hooked beforehand: `nnx.merge` is watched for those that it makes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from comparative_benchmark.backend_api import UnsupportedError
from comparative_benchmark.intermediates import Array, Note, layer_of, widened
from openxla.benchmark.models.shared_model import as_tuple

Path = tuple[str | int, ...]


def run(model: Any, inputs: Sequence[Array], note: Note) -> tuple[Any, ...]:
    """Runs a model in float64, op by op, and notes what each layer gives; returns the outputs."""
    if not hasattr(model, "weight_names"):
        raise UnsupportedError(f"{type(model).__name__} does not say where its weights come from")
    names = {path[:-1]: layer_of(name) for path, name in model.weight_names.items()}
    # The root's own weights are not those of a layer.
    names.pop((), None)
    with jax.enable_x64(True), jax.disable_jit(), _watched(names, note):
        params = jax.tree.map(_widen, model.params)
        outputs = model.apply(params, *(jnp.asarray(widened(value)) for value in inputs))
        return tuple(np.asarray(value) for value in as_tuple(outputs))


def _widen(leaf: Any) -> Any:
    return jnp.asarray(leaf, jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


@contextmanager
def _watched(names: dict[Path, str], note: Note) -> Iterator[None]:
    """Notes what modules give, of those that `nnx.merge` makes inside the block."""
    merge = nnx.merge
    layers: dict[int, str] = {}
    alive = []  # so that no identity is given twice
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
            value = as_tuple(output)[0]
            if id(self) in layers and not isinstance(value, jax.core.Tracer):
                note(layers[id(self)], np.asarray(value))
            return output

        owner.__call__ = noting  # type: ignore[operator,method-assign]

    nnx.merge = watching
    try:
        yield
    finally:
        nnx.merge = merge
        for owner, call in wrapped.items():
            owner.__call__ = call  # type: ignore[operator,method-assign]
