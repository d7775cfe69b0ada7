"""Transformers written out in jax.numpy: functions of a dict of arrays, no layers.

Each function takes a configuration and an attention function. It returns the network: a function of
the weights and the inputs of our model.
"""

import jax
import jax.numpy as jnp
import numpy as np
from _plain_jax import (
    Attend,
    Config,
    Network,
    Weights,
    conv,
    heads,
    layer_norm,
    linear,
    merged,
    rms_norm,
)

from openxla.benchmark.models.architectures.causal_lm import rotary_frequencies
from openxla.benchmark.models.architectures.t5 import relative_buckets

_LOWEST = np.finfo(np.float32).min


def bert(config: Config, attend: Attend) -> Network:
    count, epsilon = config["num_attention_heads"], config["layer_norm_eps"]

    def layer(w: Weights, name: str, x: jax.Array, bias: jax.Array) -> jax.Array:
        part = f"{name}.attention"
        query, key, value = (
            heads(linear(w, f"{part}.self.{side}", x), count) for side in ("query", "key", "value")
        )
        context = merged(attend(query, key, value, bias=bias))
        x += linear(w, f"{part}.output.dense", context)
        x = layer_norm(w, f"{part}.output.LayerNorm", x, epsilon)
        up = jax.nn.gelu(linear(w, f"{name}.intermediate.dense", x), approximate=False)
        x += linear(w, f"{name}.output.dense", up)
        return layer_norm(w, f"{name}.output.LayerNorm", x, epsilon)

    def run(w: Weights, ids: jax.Array, mask: jax.Array) -> jax.Array:
        words, positions, types = (
            w[f"embeddings.{table}_embeddings.weight"]
            for table in ("word", "position", "token_type")
        )
        x = words[ids] + types[0] + positions[: ids.shape[1]]
        x = layer_norm(w, "embeddings.LayerNorm", x, epsilon)
        bias = jnp.where(mask[:, None, None, :] > 0, np.float32(0), _LOWEST)
        for index in range(config["num_hidden_layers"]):
            x = layer(w, f"encoder.layer.{index}", x, bias)
        return x

    return run


def vit(config: Config, attend: Attend) -> Network:
    count, epsilon, patch = (
        config[key] for key in ("num_attention_heads", "layer_norm_eps", "patch_size")
    )

    def run(w: Weights, pixels: jax.Array) -> jax.Array:
        projection = "vit.embeddings.patch_embeddings.projection"
        x = conv(w, projection, pixels.transpose(0, 2, 3, 1), stride=patch, padding=(0, 0))
        batch, _, _, hidden = x.shape
        token = jnp.broadcast_to(w["vit.embeddings.cls_token"], (batch, 1, hidden))
        x = jnp.concatenate([token, x.reshape(batch, -1, hidden)], axis=1)
        x += w["vit.embeddings.position_embeddings"]
        for index in range(config["num_hidden_layers"]):
            name = f"vit.layers.{index}"
            y = layer_norm(w, f"{name}.layernorm_before", x, epsilon)
            query, key, value = (
                heads(linear(w, f"{name}.attention.{side}_proj", y), count) for side in "qkv"
            )
            x += linear(w, f"{name}.attention.o_proj", merged(attend(query, key, value)))
            y = linear(w, f"{name}.mlp.fc1", layer_norm(w, f"{name}.layernorm_after", x, epsilon))
            x += linear(w, f"{name}.mlp.fc2", jax.nn.gelu(y, approximate=False))
        return linear(w, "classifier", layer_norm(w, "vit.layernorm", x, epsilon)[:, 0])

    return run


def sd_clip(config: Config, attend: Attend) -> Network:
    count, epsilon = config["num_attention_heads"], config["layer_norm_eps"]

    def run(w: Weights, ids: jax.Array) -> jax.Array:
        x = w["embeddings.token_embedding.weight"][ids]
        x += w["embeddings.position_embedding.weight"][: ids.shape[1]]
        for index in range(config["num_hidden_layers"]):
            name = f"encoder.layers.{index}"
            y = layer_norm(w, f"{name}.layer_norm1", x, epsilon)
            query, key, value = (
                heads(linear(w, f"{name}.self_attn.{side}_proj", y), count) for side in "qkv"
            )
            context = merged(attend(query, key, value, causal=True))
            x += linear(w, f"{name}.self_attn.out_proj", context)
            y = linear(w, f"{name}.mlp.fc1", layer_norm(w, f"{name}.layer_norm2", x, epsilon))
            x += linear(w, f"{name}.mlp.fc2", y * jax.nn.sigmoid(1.702 * y))
        return layer_norm(w, "final_layer_norm", x, epsilon)

    return run


def gpt2(config: Config, attend: Attend) -> Network:
    count, epsilon = config["n_head"], config["layer_norm_epsilon"]

    def run(w: Weights, ids: jax.Array) -> jax.Array:
        words = w["transformer.wte.weight"]
        x = words[ids] + w["transformer.wpe.weight"][: ids.shape[1]]
        for index in range(config["n_layer"]):
            name = f"transformer.h.{index}"
            y = linear(w, f"{name}.attn.c_attn", layer_norm(w, f"{name}.ln_1", x, epsilon))
            query, key, value = (heads(part, count) for part in jnp.split(y, 3, axis=-1))
            context = merged(attend(query, key, value, causal=True))
            x += linear(w, f"{name}.attn.c_proj", context)
            y = linear(w, f"{name}.mlp.c_fc", layer_norm(w, f"{name}.ln_2", x, epsilon))
            x += linear(w, f"{name}.mlp.c_proj", jax.nn.gelu(y, approximate=True))
        return layer_norm(w, "transformer.ln_f", x, epsilon) @ words.T

    return run


def rotary(config: Config, attend: Attend) -> Network:
    """Llama and Gemma."""
    gemma, epsilon = config["model_type"] == "gemma", config["rms_norm_eps"]
    counts = {
        "q": config["num_attention_heads"],
        "k": config["num_key_value_heads"],
        "v": config["num_key_value_heads"],
    }
    frequencies = np.array(rotary_frequencies(config))

    def norm(w: Weights, name: str, x: jax.Array) -> jax.Array:
        return rms_norm(w, name, x, epsilon, base=1.0 if gemma else 0.0)

    def layer(w: Weights, name: str, x: jax.Array) -> jax.Array:
        angles = np.arange(x.shape[1])[:, None] * np.tile(frequencies, 2)
        cosine, sine = (wave(angles).astype(np.float32)[:, None, :] for wave in (np.cos, np.sin))

        def rotate(part: jax.Array) -> jax.Array:
            first, second = jnp.split(part, 2, axis=-1)
            return part * cosine + jnp.concatenate([-second, first], axis=-1) * sine

        y = norm(w, f"{name}.input_layernorm", x)
        query, key, value = (
            heads(linear(w, f"{name}.self_attn.{side}_proj", y), count)
            for side, count in counts.items()
        )
        context = merged(attend(rotate(query), rotate(key), value, causal=True))
        x += linear(w, f"{name}.self_attn.o_proj", context)
        y = norm(w, f"{name}.post_attention_layernorm", x)
        gate = linear(w, f"{name}.mlp.gate_proj", y)
        gate = jax.nn.gelu(gate, approximate=True) if gemma else jax.nn.silu(gate)
        return x + linear(w, f"{name}.mlp.down_proj", gate * linear(w, f"{name}.mlp.up_proj", y))

    def run(w: Weights, ids: jax.Array) -> jax.Array:
        words = w["model.embed_tokens.weight"]
        x = words[ids]
        if gemma:
            x *= np.float32(config["hidden_size"] ** 0.5)
        for index in range(config["num_hidden_layers"]):
            x = layer(w, f"model.layers.{index}", x)
        x = norm(w, "model.norm", x)
        return x @ words.T if config["tie_word_embeddings"] else linear(w, "lm_head", x)

    return run


def t5(config: Config, attend: Attend) -> Network:
    count, epsilon = config["num_heads"], config["layer_norm_epsilon"]

    def attention(
        w: Weights, name: str, x: jax.Array, context: jax.Array, bias: jax.Array | None
    ) -> jax.Array:
        query = heads(linear(w, f"{name}.q", x), count)
        key, value = (heads(linear(w, f"{name}.{side}", context), count) for side in "kv")
        return linear(w, f"{name}.o", merged(attend(query, key, value, bias=bias, scale=1.0)))

    def stack(
        w: Weights, name: str, depth: int, x: jax.Array, encoded: jax.Array | None
    ) -> jax.Array:
        places = np.arange(x.shape[1])
        distances = places[None, :] - places[:, None]
        buckets = relative_buckets(
            distances,
            count=config["relative_attention_num_buckets"],
            longest=config["relative_attention_max_distance"],
            bidirectional=encoded is None,
        )
        first = f"{name}.block.0.layer.0.SelfAttention"
        table = w[f"{first}.relative_attention_bias.weight"]
        bias = table[buckets].transpose(2, 0, 1)[None]
        if encoded is not None:
            bias = jnp.where(distances <= 0, bias, _LOWEST)
        for index in range(depth):
            block = f"{name}.block.{index}.layer"
            y = rms_norm(w, f"{block}.0.layer_norm", x, epsilon)
            x += attention(w, f"{block}.0.SelfAttention", y, y, bias)
            last = 1
            if encoded is not None:
                y = rms_norm(w, f"{block}.1.layer_norm", x, epsilon)
                x += attention(w, f"{block}.1.EncDecAttention", y, encoded, None)
                last = 2
            y = rms_norm(w, f"{block}.{last}.layer_norm", x, epsilon)
            up = jax.nn.relu(linear(w, f"{block}.{last}.DenseReluDense.wi", y))
            x += linear(w, f"{block}.{last}.DenseReluDense.wo", up)
        return rms_norm(w, f"{name}.final_layer_norm", x, epsilon)

    def run(w: Weights, ids: jax.Array, decoder_ids: jax.Array) -> jax.Array:
        words = w["shared.weight"]
        encoded = stack(w, "encoder", config["num_layers"], words[ids], None)
        return stack(w, "decoder", config["num_decoder_layers"], words[decoder_ids], encoded)

    return run


def whisper(config: Config, attend: Attend) -> Network:
    epsilon = 1e-5

    def attention(
        w: Weights, name: str, x: jax.Array, context: jax.Array, *, count: int, causal: bool
    ) -> jax.Array:
        query = heads(linear(w, f"{name}.q_proj", x), count)
        key, value = (heads(linear(w, f"{name}.{side}_proj", context), count) for side in "kv")
        found = attend(query, key, value, causal=causal)
        return linear(w, f"{name}.out_proj", merged(found))

    def stack(w: Weights, side: str, x: jax.Array, encoded: jax.Array | None) -> jax.Array:
        count = config[f"{side}_attention_heads"]
        causal = encoded is not None
        for index in range(config[f"{side}_layers"]):
            name = f"model.{side}.layers.{index}"
            y = layer_norm(w, f"{name}.self_attn_layer_norm", x, epsilon)
            x += attention(w, f"{name}.self_attn", y, y, count=count, causal=causal)
            if encoded is not None:
                y = layer_norm(w, f"{name}.encoder_attn_layer_norm", x, epsilon)
                part = f"{name}.encoder_attn"
                x += attention(w, part, y, encoded, count=count, causal=False)
            y = linear(w, f"{name}.fc1", layer_norm(w, f"{name}.final_layer_norm", x, epsilon))
            x += linear(w, f"{name}.fc2", jax.nn.gelu(y, approximate=False))
        return layer_norm(w, f"model.{side}.layer_norm", x, epsilon)

    def run(w: Weights, features: jax.Array, ids: jax.Array) -> jax.Array:
        x = conv(w, "model.encoder.conv1", features.transpose(0, 2, 1))
        x = conv(w, "model.encoder.conv2", jax.nn.gelu(x, approximate=False), stride=2)
        x = jax.nn.gelu(x, approximate=False) + w["model.encoder.embed_positions.weight"]
        encoded = stack(w, "encoder", x, None)
        words = w["model.decoder.embed_tokens.weight"]
        x = words[ids] + w["model.decoder.embed_positions.weight"][: ids.shape[1]]
        return stack(w, "decoder", x, encoded) @ words.T

    return run
