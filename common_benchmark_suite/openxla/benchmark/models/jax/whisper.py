"""Whisper in JAX: our own flax.nnx modules on the shared checkpoint."""

from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import whisper
from openxla.benchmark.models.jax import flax_model
from openxla.benchmark.models.jax.layers import (
    Conv,
    Linear,
    MultiHeadAttention,
    layer_norm,
    product,
)

_EPSILON = 1e-5  # of the norms; hard-coded in transformers
_BIASES = ("query", "value")  # keys have none


class Layer(nnx.Module):
    """Attention and feed-forward, each with a layer norm before it and a residual sum.

    A layer of the decoder is causal, and attends to the encoder's output in between.
    """

    def __init__(self, config: Mapping[str, Any], side: str, rngs: nnx.Rngs) -> None:
        width, heads = config["d_model"], config[f"{side}_attention_heads"]
        self.attention_norm = layer_norm(width, _EPSILON, rngs)
        self.attention = MultiHeadAttention(width, heads, rngs, biases=_BIASES)
        decoder = side == "decoder"
        self.cross_norm = nnx.data(layer_norm(width, _EPSILON, rngs)) if decoder else None
        cross = MultiHeadAttention(width, heads, rngs, biases=_BIASES) if decoder else None
        self.cross = nnx.data(cross)
        self.mlp_norm = layer_norm(width, _EPSILON, rngs)
        self.up = Linear(width, config[f"{side}_ffn_dim"], rngs=rngs)
        self.down = Linear(config[f"{side}_ffn_dim"], width, rngs=rngs)

    def __call__(self, x: jax.Array, context: jax.Array | None = None) -> jax.Array:
        """[batch, seq, width], for a decoder also [batch, positions, width]; first shape out."""
        y = self.attention_norm(x)
        x = x + self.attention(y, y, causal=context is not None)
        if self.cross is not None and self.cross_norm is not None:
            x = x + self.cross(self.cross_norm(x), context)
        return x + self.down(jax.nn.gelu(self.up(self.mlp_norm(x)), approximate=False))


class Encoder(nnx.Module):
    """Two convolutions over time, positions, layers, norm."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        width, bands = config["d_model"], config["num_mel_bins"]
        stride = whisper.FRAMES_PER_POSITION
        # Explicit symmetric padding: "SAME" would shift strided windows by one frame.
        self.conv1 = Conv(bands, width, (3,), padding=1, rngs=rngs)
        self.conv2 = Conv(width, width, (3,), strides=stride, padding=1, rngs=rngs)
        self.positions = nnx.Embed(config["max_source_positions"], width, rngs=rngs)
        depth = config["encoder_layers"]
        self.layers = nnx.List([Layer(config, "encoder", rngs) for _ in range(depth)])
        self.norm = layer_norm(width, _EPSILON, rngs)

    def __call__(self, input_features: jax.Array) -> jax.Array:
        """[batch, bands, frames] -> [batch, frames / 2, width]."""
        x = jax.nn.gelu(self.conv1(input_features.swapaxes(1, 2)), approximate=False)
        x = jax.nn.gelu(self.conv2(x), approximate=False) + self.positions.embedding[...]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Whisper(nnx.Module):
    """Encoder, decoder, and logits by the decoder's own token embeddings."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        width, depth = config["d_model"], config["decoder_layers"]
        self.encoder = Encoder(config, rngs)
        self.tokens = nnx.Embed(config["vocab_size"], width, rngs=rngs)
        self.positions = nnx.Embed(config["max_target_positions"], width, rngs=rngs)
        self.layers = nnx.List([Layer(config, "decoder", rngs) for _ in range(depth)])
        self.norm = layer_norm(width, _EPSILON, rngs)

    def __call__(self, input_features: jax.Array, decoder_input_ids: jax.Array) -> jax.Array:
        """[batch, bands, frames] and i32[batch, seq] -> logits [batch, seq, vocab]."""
        context = self.encoder(input_features)
        # Index the tables directly, because `nnx.Embed` computes in the type it was built with, not
        # in the weights' type. Position i is row i.
        tokens, positions = self.tokens.embedding[...], self.positions.embedding[...]
        x = tokens[decoder_input_ids] + positions[: decoder_input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x, context)
        return product("bsh,vh->bsv", self.norm(x), tokens)


create_model = flax_model.creator(whisper.ARCHITECTURE, Whisper)


if __name__ == "__main__":
    shared_model.run_once(create_model, **whisper.ARCHITECTURE.example)
