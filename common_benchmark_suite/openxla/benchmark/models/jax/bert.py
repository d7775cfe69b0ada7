"""BERT in JAX: our own flax.nnx modules on the shared checkpoint."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import bert
from openxla.benchmark.models.jax import flax_model
from openxla.benchmark.models.jax.layers import Linear, MultiHeadAttention, layer_norm, wide


class Layer(nnx.Module):
    """Attention and feed-forward, each with a residual sum and a layer norm after it."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.attention = MultiHeadAttention(hidden, config["num_attention_heads"], rngs)
        self.attention_norm = layer_norm(hidden, config["layer_norm_eps"], rngs)
        self.up = Linear(hidden, intermediate, rngs=rngs)
        self.down = Linear(intermediate, hidden, rngs=rngs)
        self.output_norm = layer_norm(hidden, config["layer_norm_eps"], rngs)

    def __call__(self, x: jax.Array, bias: jax.Array) -> jax.Array:
        """[batch, seq, hidden] and bias [batch, 1, 1, seq] -> [batch, seq, hidden]."""
        x = self.attention_norm(x + self.attention(x, x, bias=bias))
        return self.output_norm(x + self.down(jax.nn.gelu(self.up(x), approximate=False)))


class Bert(nnx.Module):
    """Embeddings and encoder."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden = config["hidden_size"]
        self.words = nnx.Embed(config["vocab_size"], hidden, rngs=rngs)
        self.positions = nnx.Embed(config["max_position_embeddings"], hidden, rngs=rngs)
        self.types = nnx.Embed(config["type_vocab_size"], hidden, rngs=rngs)
        self.norm = layer_norm(hidden, config["layer_norm_eps"], rngs)
        self.layers = nnx.List([Layer(config, rngs) for _ in range(config["num_hidden_layers"])])

    def __call__(self, input_ids: jax.Array, attention_mask: jax.Array) -> jax.Array:
        """input_ids and attention_mask i32[batch, seq] -> [batch, seq, hidden]."""
        seq = input_ids.shape[1]
        # Index the tables directly, because `nnx.Embed` computes in the type it was built with, not
        # in the weights' type. All tokens have type 0, and position i is row i.
        tables = (part.embedding[...] for part in (self.words, self.types, self.positions))
        words, types, positions = tables
        x = self.norm(words[input_ids] + types[0] + positions[:seq])
        lowest = jnp.array(jnp.finfo(wide(x)).min, wide(x))
        bias = jnp.where(attention_mask[:, None, None, :] > 0, jnp.zeros((), wide(x)), lowest)
        for layer in self.layers:
            x = layer(x, bias)
        return x


create_model = flax_model.creator(bert.ARCHITECTURE, Bert)


if __name__ == "__main__":
    shared_model.run_once(create_model, **bert.ARCHITECTURE.example)
