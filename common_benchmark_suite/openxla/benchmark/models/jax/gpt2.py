"""GPT-2 in JAX: our own flax.nnx modules on the shared checkpoint."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import gpt2
from openxla.benchmark.models.jax import causal_lm
from openxla.benchmark.models.jax.causal_lm import Cache, LayerCache
from openxla.benchmark.models.jax.layers import Linear, layer_norm, product


class Layer(nnx.Module):
    """Attention and feed-forward, each after a layer norm, added to its input."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden, epsilon = config["n_embd"], config["layer_norm_epsilon"]
        self.head_size = hidden // config["n_head"]
        self.attention_norm = layer_norm(hidden, epsilon, rngs)
        self.query_key_value = Linear(hidden, 3 * hidden, rngs=rngs)
        self.output = Linear(hidden, hidden, rngs=rngs)
        self.norm = layer_norm(hidden, epsilon, rngs)
        self.up = Linear(hidden, 4 * hidden, rngs=rngs)
        self.down = Linear(4 * hidden, hidden, rngs=rngs)

    def __call__(
        self, x: jax.Array, position: jax.Array | int, cache: LayerCache | None
    ) -> tuple[jax.Array, LayerCache]:
        """[batch, seq, hidden], same shape out, and keys and values."""
        query, key, value = (
            causal_lm.split_heads(part, self.head_size)
            for part in jnp.split(self.query_key_value(self.attention_norm(x)), 3, axis=-1)
        )
        context, cache = causal_lm.attention(query, key, value, position, cache)
        x = x + self.output(context)
        return x + self.down(jax.nn.gelu(self.up(self.norm(x)), approximate=True)), cache


class Gpt2(causal_lm.Decoder):
    """Embeddings, layers, and a head that shares the token embeddings."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        self.words = nnx.Embed(config["vocab_size"], config["n_embd"], rngs=rngs)
        self.positions = nnx.Embed(config["n_positions"], config["n_embd"], rngs=rngs)
        self.layers = nnx.List([Layer(config, rngs) for _ in range(config["n_layer"])])
        self.norm = layer_norm(config["n_embd"], config["layer_norm_epsilon"], rngs)

    def hidden(
        self, tokens: jax.Array, position: jax.Array | int = 0, cache: Cache | None = None
    ) -> tuple[jax.Array, Cache]:
        """See `Decoder.hidden`."""
        # Index the tables directly, because `nnx.Embed` computes in the type it was built with, not
        # in the weights' type.
        words, positions = self.words.embedding[...], self.positions.embedding[...]
        rows = jax.lax.dynamic_slice_in_dim(positions, position, tokens.shape[1])
        x = words[tokens] + rows
        layers = []
        for index, layer in enumerate(self.layers):
            x, new = layer(x, position, None if cache is None else cache[index])
            layers.append(new)
        return self.norm(x), tuple(layers)

    def logits(self, x: jax.Array) -> jax.Array:
        """See `Decoder.logits`."""
        return product("...h,vh->...v", x, self.words.embedding[...])


create_model = causal_lm.creator(gpt2.ARCHITECTURE, Gpt2)


if __name__ == "__main__":
    shared_model.run_once(create_model, **gpt2.ARCHITECTURE.example)
