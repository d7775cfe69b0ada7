"""JAX models as pure functions with weights, the precision to trace them in, and their layers."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from comparative_benchmark.backends import host_settings, intermediates
from comparative_benchmark.backends.api import Array, UnsupportedError
from comparative_benchmark.backends.intermediates import Note, layer_of
from openxla.benchmark.models.shared_model import as_tuple


def split(model: Any) -> tuple[Callable[..., Any], Any]:
    """Returns a model's pure function and its weights.

    These are `apply(params, *inputs)` and `params`, if the model has them; otherwise `forward`,
    with whatever it closes over, and no weights.
    """
    if hasattr(model, "apply") and hasattr(model, "params"):
        return model.apply, model.params
    return (lambda _, *inputs: model.forward(*inputs)), ()


def precision(*, on_gpu: bool, types: Iterable[str]) -> contextlib.AbstractContextManager[Any]:
    """Returns a context to trace in, which forbids TF32 to a float32 model on a GPU.

    Traced products and convolutions keep this precision. A 16-bit model is traced as its users
    trace it.
    """
    if on_gpu and host_settings.is_float32(types):
        context: contextlib.AbstractContextManager[Any] = jax.default_matmul_precision("highest")
        return context
    return contextlib.nullcontext()


def widened(tree: Any) -> Any:
    """Returns arrays with real and complex numbers in double; requires 64 bits to be enabled."""

    def wide(leaf: Any) -> Any:
        is_exact = not jnp.issubdtype(leaf.dtype, jnp.inexact)
        return leaf if is_exact else jnp.asarray(leaf, jnp.promote_types(leaf.dtype, jnp.float64))

    return jax.tree.map(wide, tree)


def record_layers(model: Any, inputs: Sequence[Array], note: Note) -> tuple[Any, ...]:
    """Runs a model in float64 and records the output of each layer; returns the outputs."""
    if not hasattr(model, "weight_names"):
        raise UnsupportedError(f"{type(model).__name__} does not define weight_names")
    names = {path[:-1]: layer_of(name) for path, name in model.weight_names.items()}
    # Weights of the root do not belong to a layer.
    names.pop((), None)
    layers: list[tuple[str, Any]] = []

    def apply(params: Any, *values: Any) -> Any:
        """Returns the outputs, and the outputs of the layers."""
        layers.clear()
        with _watched(names, lambda name, value: layers.append((name, value))):
            outputs = model.apply(params, *values)
        return as_tuple(outputs), [value for _, value in layers]

    with jax.enable_x64(True):
        arguments = widened(model.params), *map(jnp.asarray, map(intermediates.widened, inputs))
        try:
            outputs, values = jax.jit(apply)(*arguments)
        except jax.errors.UnexpectedTracerError:
            # Layers inside a loop of the program have no values outside it, unless JAX runs op by
            # op.
            with jax.disable_jit():
                outputs, values = apply(*arguments)
        for (name, _), value in zip(layers, values, strict=True):
            note(name, np.asarray(value))
        return tuple(np.asarray(value) for value in outputs)


@contextlib.contextmanager
def _watched(
    names: dict[tuple[str | int, ...], str], note: Callable[[str, Any], None]
) -> Iterator[None]:
    """Records the outputs of modules that `nnx.merge` creates inside the block.

    Our models merge graph and weights again in each call (`FlaxModel.apply`), so modules cannot be
    hooked beforehand.
    """
    from flax import nnx

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
