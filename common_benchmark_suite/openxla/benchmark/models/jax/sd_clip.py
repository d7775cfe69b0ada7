"""The text encoder of Stable Diffusion in JAX: our own flax.nnx modules."""

from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_clip
from openxla.benchmark.models.jax import flax_model
from openxla.benchmark.models.jax.layers import Linear, MultiHeadAttention, layer_norm


class Layer(nnx.Module):
    """Attention and feed-forward, each with a layer norm before it and a residual sum."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.attention_norm = layer_norm(hidden, config["layer_norm_eps"], rngs)
        self.attention = MultiHeadAttention(hidden, config["num_attention_heads"], rngs)
        self.mlp_norm = layer_norm(hidden, config["layer_norm_eps"], rngs)
        self.up = Linear(hidden, intermediate, rngs=rngs)
        self.down = Linear(intermediate, hidden, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """[batch, seq, hidden] -> [batch, seq, hidden]."""
        y = self.attention_norm(x)
        x = x + self.attention(y, y, causal=True)
        y = self.up(self.mlp_norm(x))
        # CLIP's approximation of GELU (Hendrycks and Gimpel 2016, arXiv:1606.08415).
        return x + self.down(y * jax.nn.sigmoid(1.702 * y))


class SdClip(nnx.Module):
    """Embeddings, encoder, norm."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden = config["hidden_size"]
        self.words = nnx.Embed(config["vocab_size"], hidden, rngs=rngs)
        self.positions = nnx.Embed(config["max_position_embeddings"], hidden, rngs=rngs)
        self.layers = nnx.List([Layer(config, rngs) for _ in range(config["num_hidden_layers"])])
        self.norm = layer_norm(hidden, config["layer_norm_eps"], rngs)

    def __call__(self, input_ids: jax.Array) -> jax.Array:
        """input_ids i32[batch, seq] -> [batch, seq, hidden]."""
        # Index the tables directly, because `nnx.Embed` computes in the type it was built with, not
        # in the weights' type. Position i is row i.
        words, positions = self.words.embedding[...], self.positions.embedding[...]
        x = words[input_ids] + positions[: input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


create_model = flax_model.creator(sd_clip.ARCHITECTURE, SdClip)


if __name__ == "__main__":
    shared_model.run_once(create_model, **sd_clip.ARCHITECTURE.example)
