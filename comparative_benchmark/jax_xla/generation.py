"""Prefill and decode of a JAX model, apart."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from comparative_benchmark.backends.api import Array, GenerationParts

# Tokens that were chosen, i32[batch], and the logits that they were chosen by.
Chosen = tuple[jax.Array, jax.Array]


class JaxGenerationParts(GenerationParts):
    """Compiles `prefill` and `decode`, each with the choice of the token, ahead of time.

    `decode` is given the cache for good (donated), so that XLA writes into it, as it does inside
    the loop of a whole generation; it would have to copy it for each token otherwise.
    """

    def __init__(self, model: Any, params: Any, inputs: Sequence[jax.Array]) -> None:
        def prefill(params: Any, *inputs: jax.Array) -> tuple[jax.Array, jax.Array, Any]:
            logits, cache = model.prefill(params, *inputs)
            return _choose(logits), logits, cache

        def decode(
            params: Any, token: jax.Array, position: jax.Array, cache: Any
        ) -> tuple[jax.Array, jax.Array, Any]:
            logits, cache = model.decode(params, token, position, cache)
            return _choose(logits), logits, cache

        self.steps = model.max_new_tokens - 1
        self._params = params
        self._inputs = inputs
        first = model.first_position(*inputs)
        device = inputs[0].device
        self._positions = [
            jax.device_put(np.int32(first + index), device) for index in range(self.steps)
        ]
        self._next = 0
        self._prefill = jax.jit(prefill).lower(params, *inputs).compile()
        self._token, _, self._cache = self._prefill(params, *inputs)
        self._decode: Any = None
        if self.steps:
            lowered = jax.jit(decode, donate_argnums=3).lower(
                params, self._token, self._positions[0], self._cache
            )
            self._decode = lowered.compile()

    def prefill(self) -> Chosen:
        """See `GenerationParts.prefill`."""
        self._token, logits, self._cache = self._prefill(self._params, *self._inputs)
        self._next = 0
        return self._token, logits

    def decode(self) -> Chosen:
        """See `GenerationParts.decode`."""
        position = self._positions[self._next % self.steps]
        self._next += 1
        self._token, logits, self._cache = self._decode(
            self._params, self._token, position, self._cache
        )
        return self._token, logits

    def synchronize(self, handle: Chosen) -> None:
        """Waits until both are complete."""
        jax.block_until_ready(handle)

    def fetch(self, handle: Chosen) -> tuple[Array, Array]:
        """Copies tokens and logits to the host."""
        tokens, logits = handle
        return np.asarray(tokens), np.asarray(logits)


def _choose(logits: jax.Array) -> jax.Array:
    return jax.lax.argmax(logits, axis=1, index_dtype=jnp.int32)
