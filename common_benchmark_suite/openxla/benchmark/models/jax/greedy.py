"""Greedy generation in JAX: one program with a loop, with the weights as arguments."""

from typing import Any

import jax
import jax.numpy as jnp

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.base import integer
from openxla.benchmark.models.generation import GenerationModel
from openxla.benchmark.models.jax.flax_model import Build, FlaxModel


class GreedyModel(FlaxModel, GenerationModel):
    """A generating model; `apply` and `generate` are the same function.

    `prefill` and `decode` take the weights first, too.
    """

    def __init__(self, architecture: Architecture, parameters: Parameters, build: Build) -> None:
        super().__init__(architecture, parameters, build)
        self.max_new_tokens = integer(parameters, "max_new_tokens")
        self._prompt_inputs = len(architecture.input_specs(parameters))

    def generate(self, params: Any, *inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """See `GenerationModel.generate`."""
        prompt, given = inputs[: self._prompt_inputs], inputs[self._prompt_inputs :]

        def step(
            carry: tuple[jax.Array, Any], inputs: tuple[jax.Array, jax.Array | None]
        ) -> tuple[tuple[jax.Array, Any], tuple[jax.Array, jax.Array]]:
            logits, cache = carry
            position, forced = inputs
            token = _choose(logits)
            fed = token if forced is None else forced
            return self.decode(params, fed, position, cache), (token, logits)

        steps = self.max_new_tokens - 1
        positions = self.first_position(*prompt) + jnp.arange(steps, dtype=jnp.int32)
        forced = given[0][:, :steps].T if given else None
        (last, _), (tokens, logits) = jax.lax.scan(
            step, self.prefill(params, *prompt), (positions, forced)
        )
        tokens = jnp.concatenate([tokens, _choose(last)[None]])
        logits = jnp.concatenate([logits, last[None]])
        return tokens.T, logits.swapaxes(0, 1)

    def apply(self, params: Any, *inputs: Any) -> Any:
        """Generates with the given weights; pure, can be jitted."""
        return self.generate(params, *inputs)


def _choose(logits: jax.Array) -> jax.Array:
    return jax.lax.argmax(logits, axis=1, index_dtype=jnp.int32)
