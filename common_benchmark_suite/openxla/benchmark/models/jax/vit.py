"""ViT in JAX: our own flax.nnx modules on the shared checkpoint."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import vit
from openxla.benchmark.models.jax import flax_model
from openxla.benchmark.models.jax.layers import Conv, Linear, MultiHeadAttention, layer_norm


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
        x = x + self.attention(y, y)
        return x + self.down(jax.nn.gelu(self.up(self.mlp_norm(x)), approximate=False))


class ViT(nnx.Module):
    """Patch embeddings, encoder, classifier of the first token."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden, patch = config["hidden_size"], config["patch_size"]
        positions = (config["image_size"] // patch) ** 2 + 1
        self.patches = Conv(
            config["num_channels"],
            hidden,
            (patch, patch),
            strides=patch,
            padding="VALID",
            rngs=rngs,
        )
        self.class_token = nnx.Param(jnp.zeros((1, 1, hidden)))
        self.positions = nnx.Param(jnp.zeros((1, positions, hidden)))
        self.layers = nnx.List([Layer(config, rngs) for _ in range(config["num_hidden_layers"])])
        self.norm = layer_norm(hidden, config["layer_norm_eps"], rngs)
        self.classifier = Linear(hidden, len(config["id2label"]), rngs=rngs)

    def __call__(self, pixel_values: jax.Array) -> jax.Array:
        """Pixels [batch, 3, height, width] -> logits [batch, labels]."""
        patches = self.patches(pixel_values.transpose(0, 2, 3, 1))
        batch, _, _, hidden = patches.shape
        token = jnp.broadcast_to(self.class_token[...], (batch, 1, hidden))
        x = jnp.concatenate([token, patches.reshape(batch, -1, hidden)], axis=1)
        x = x + self.positions[...]
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.norm(x)[:, 0])


create_model = flax_model.creator(vit.ARCHITECTURE, ViT)


if __name__ == "__main__":
    shared_model.run_once(create_model, **vit.ARCHITECTURE.example)
