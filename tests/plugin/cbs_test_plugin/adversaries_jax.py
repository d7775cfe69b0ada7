"""Wrong BERTs in JAX."""

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from cbs_test_plugin.adversaries import FUNCTIONS, KEEPING, rounding
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import bert
from openxla.benchmark.models.jax.bert import Bert, Layer
from openxla.benchmark.models.jax.flax_model import FlaxModel
from openxla.benchmark.models.jax.layers import Linear

_ARRAYS = types.SimpleNamespace(
    arange=jnp.arange, full_like=jnp.full_like, where=jnp.where, roll=jnp.roll, flip=jnp.flip
)  # fmt: skip


@contextmanager
def _coarser_linear_layers(fault: str) -> Iterator[None]:
    """While active, rounds weights and inputs of all linear layers, and nothing else."""
    rounded = rounding(fault, jnp, lambda value: value.astype(jnp.bfloat16).astype(jnp.float32))
    right = Linear.__call__

    def call(layer: Linear, inputs: jax.Array, *args: Any, **options: Any) -> jax.Array:
        weight = layer.kernel[...]
        layer.kernel[...] = rounded(weight.astype(jnp.float32), 1).astype(weight.dtype)
        coarse = rounded(inputs.astype(jnp.float32), None).astype(inputs.dtype)
        return right(layer, coarse, *args, **options)

    Linear.__call__ = call
    try:
        yield
    finally:
        Linear.__call__ = right


class TanhLayer(Layer):
    def __call__(self, x: jax.Array, bias: jax.Array) -> jax.Array:
        x = self.attention_norm(x + self.attention(x, bias))
        return self.output_norm(x + self.down(jax.nn.gelu(self.up(x), approximate=True)))


class TanhBert(Bert):
    def __init__(self, config: Any, rngs: nnx.Rngs) -> None:
        super().__init__(config, rngs)
        count = config["num_hidden_layers"]
        self.layers = nnx.List([TanhLayer(config, rngs) for _ in range(count)])


class Adversary(FlaxModel):
    """A right model and its fault."""

    def __init__(self, parameters: Any, fault: str) -> None:
        self.fault = fault
        build: Any = TanhBert if fault == "tanh-gelu" else Bert
        if fault == "norm-epsilon":
            super().__init__(
                bert.ARCHITECTURE,
                parameters,
                lambda config, rngs: Bert({**config, "layer_norm_eps": 1e-3}, rngs),
            )
        else:
            super().__init__(bert.ARCHITECTURE, parameters, build)
        self.kept: dict[str, Any] = {}
        if fault in KEEPING:
            # A compiled function keeps what it was compiled with.
            ids, mask = map(jnp.asarray, self.preprocess(self.generate_default_inputs()))
            self.kept = {"ids": ids, "mask": mask, "output": super().apply(self.params, ids, mask)}
        self._spoil()

    def apply(self, params: Any, *inputs: Any) -> Any:
        def run(ids: Any, mask: Any) -> Any:
            return super(Adversary, self).apply(params, ids, mask)

        function = FUNCTIONS.get(self.fault)
        if function is not None:
            out = function(run, *inputs, _ARRAYS, dict(self.kept))
            return out.astype(jax.tree.leaves(params)[0].dtype)
        if self.fault.startswith("computes-in"):
            with _coarser_linear_layers(self.fault):
                return run(*inputs)
        return run(*inputs)

    def _spoil(self) -> None:
        params = self.params
        if self.fault == "head-dropped":
            kernel = params["layers"][0]["attention"]["output"]["kernel"]
            rows = kernel.shape[0] // 2  # of the first of two heads
            params["layers"][0]["attention"]["output"]["kernel"] = kernel.at[:rows].set(0)
        elif self.fault == "positions-shifted":
            table = params["positions"]["embedding"]
            params["positions"]["embedding"] = jnp.roll(table, 1, 0)
        elif self.fault == "weights-of-before":
            leaves, tree = jax.tree.flatten(params)
            keys = jax.random.split(jax.random.key(0), len(leaves))
            moved = [
                leaf + (1e-3 * leaf.std() * jax.random.normal(key, leaf.shape)).astype(leaf.dtype)
                for key, leaf in zip(keys, leaves, strict=True)
            ]
            self.params = jax.tree.unflatten(tree, moved)


def create_model(*, fault: str = "none", **parameters: Any) -> Adversary:
    """Returns the model with the given fault."""
    make = shared_model.creator(bert.ARCHITECTURE, lambda complete: Adversary(complete, fault))
    return make(**parameters)
