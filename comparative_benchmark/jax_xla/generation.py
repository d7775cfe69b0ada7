"""Prefill and decode of a JAX model as separate programs."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import block_until_ready  # by name: a model could replace the module's

from comparative_benchmark.backends.api import GenerationParts
from comparative_benchmark.backends.model_protocols import FunctionParts, Step


def parts(model: Any, params: Any, inputs: Sequence[jax.Array]) -> GenerationParts:
    """Compiles `prefill` and `decode`, each with the choice of the token, ahead of time.

    `decode` takes the cache as a donated argument, so that XLA writes into it, as it does inside
    the loop of a whole generation; otherwise it would have to copy the cache for each token.
    """

    def prefill(params: Any, *inputs: jax.Array) -> Step:
        return _chosen(*model.prefill(params, *inputs))

    def decode(params: Any, token: jax.Array, position: jax.Array, cache: Any) -> Step:
        return _chosen(*model.decode(params, token, position, cache))

    first, device = model.first_position(*inputs), inputs[0].device
    positions = [
        jax.device_put(np.int32(first + index), device) for index in range(model.max_new_tokens - 1)
    ]
    compiled_prefill = jax.jit(prefill).lower(params, *inputs).compile()
    compiled_decode = None
    if positions:
        token, _, cache = compiled_prefill(params, *inputs)
        lowered = jax.jit(decode, donate_argnums=3).lower(params, token, positions[0], cache)
        compiled_decode = functools.partial(lowered.compile(), params)
    return FunctionParts(
        functools.partial(compiled_prefill, params, *inputs),
        compiled_decode,
        positions,
        wait=block_until_ready,
        to_host=np.asarray,
    )


def _chosen(logits: jax.Array, cache: Any) -> Step:
    return jax.lax.argmax(logits, axis=1, index_dtype=jnp.int32), logits, cache
