"""BERT in JAX: flax.nnx modules of our own on the shared checkpoint."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import bert
from openxla.benchmark.models.jax import flax_model


def _layer_norm(config: Mapping[str, Any], rngs: nnx.Rngs) -> nnx.LayerNorm:
    # Variance in two passes: the fast one loses digits that the other frameworks keep.
    return nnx.LayerNorm(
        config["hidden_size"],
        epsilon=config["layer_norm_eps"],
        use_fast_variance=False,
        rngs=rngs,
    )


class SelfAttention(nnx.Module):
    """Multi-head attention of a sequence to itself."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.query = nnx.Linear(hidden, hidden, rngs=rngs)
        self.key = nnx.Linear(hidden, hidden, rngs=rngs)
        self.value = nnx.Linear(hidden, hidden, rngs=rngs)
        self.output = nnx.Linear(hidden, hidden, rngs=rngs)

    def __call__(self, x: jax.Array, bias: jax.Array) -> jax.Array:
        """[batch, seq, hidden] and bias [batch, 1, 1, seq] -> [batch, seq, hidden]."""
        batch, seq, hidden = x.shape
        head_size = hidden // self.heads
        query, key, value = (
            part(x).reshape(batch, seq, self.heads, head_size).swapaxes(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = query @ key.swapaxes(-1, -2) * np.sqrt(1 / head_size).astype(x.dtype)
        context = jax.nn.softmax(scores + bias, axis=-1) @ value
        return self.output(context.swapaxes(1, 2).reshape(batch, seq, hidden))


class Layer(nnx.Module):
    """Attention and feed-forward, each with a residual sum and a layer norm after it."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.attention = SelfAttention(config, rngs)
        self.attention_norm = _layer_norm(config, rngs)
        self.up = nnx.Linear(hidden, intermediate, rngs=rngs)
        self.down = nnx.Linear(intermediate, hidden, rngs=rngs)
        self.output_norm = _layer_norm(config, rngs)

    def __call__(self, x: jax.Array, bias: jax.Array) -> jax.Array:
        """[batch, seq, hidden] and bias [batch, 1, 1, seq] -> [batch, seq, hidden]."""
        x = self.attention_norm(x + self.attention(x, bias))
        return self.output_norm(x + self.down(jax.nn.gelu(self.up(x), approximate=False)))


class Bert(nnx.Module):
    """Embeddings and encoder."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden = config["hidden_size"]
        self.words = nnx.Embed(config["vocab_size"], hidden, rngs=rngs)
        self.positions = nnx.Embed(config["max_position_embeddings"], hidden, rngs=rngs)
        self.types = nnx.Embed(config["type_vocab_size"], hidden, rngs=rngs)
        self.norm = _layer_norm(config, rngs)
        self.layers = nnx.List([Layer(config, rngs) for _ in range(config["num_hidden_layers"])])

    def __call__(self, input_ids: jax.Array, attention_mask: jax.Array) -> jax.Array:
        """input_ids and attention_mask i32[batch, seq] -> [batch, seq, hidden]."""
        seq = input_ids.shape[1]
        # Rows are taken from the tables directly: `nnx.Embed` would compute in the type that it was
        # built with, not in that of the weights. All tokens are of type 0, position i is row i.
        tables = (part.embedding[...] for part in (self.words, self.types, self.positions))
        words, types, positions = tables
        x = self.norm(words[input_ids] + types[0] + positions[:seq])
        lowest = jnp.array(jnp.finfo(x.dtype).min, x.dtype)
        bias = jnp.where(attention_mask[:, None, None, :] > 0, jnp.zeros((), x.dtype), lowest)
        for layer in self.layers:
            x = layer(x, bias)
        return x


create_model = flax_model.creator(bert.ARCHITECTURE, Bert)


if __name__ == "__main__":
    shared_model.run_once(create_model, **bert.ARCHITECTURE.example)
