"""Decoder-only language models in JAX: scoring, greedy generation, and Llama's decoder.

The key-value cache holds keys and values as [batch, heads, length, head_dim], the layout that
attention needs. While the prompt is read, attention only covers the prompt, not the empty
positions. Generation is one program with a loop, with the weights as arguments. Gemma uses Llama's
decoder, too.
"""

import abc
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.base import integer
from openxla.benchmark.models.architectures.causal_lm import rotary_frequencies
from openxla.benchmark.models.jax.flax_model import Build, FlaxModel
from openxla.benchmark.models.jax.layers import Linear, product
from openxla.benchmark.models.model_interfaces import GenerationModel, max_new_tokens

# Keys and values of one layer, [batch, heads, length, head_dim].
LayerCache = tuple[jax.Array, jax.Array]
Cache = tuple[LayerCache, ...]

# Cosines and sines of the positions, [seq, head_dim / 2].
Rotation = tuple[jax.Array, jax.Array]

ACTIVATIONS: Mapping[str, Callable[[jax.Array], jax.Array]] = MappingProxyType(
    {"silu": jax.nn.silu, "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True)}
)


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


class Decoder(nnx.Module):
    """Base of the flax.nnx modules: tokens to hidden states, hidden states to logits."""

    @abc.abstractmethod
    def hidden(
        self, tokens: jax.Array, position: jax.Array | int = 0, cache: Cache | None = None
    ) -> tuple[jax.Array, Cache]:
        """Token ids i32[batch, seq] -> [batch, seq, hidden], and the keys and values of each layer.

        Without a cache, the tokens start at position 0 and attend to each other. With one, they are
        written into it from `position` on and attend to everything up to themselves.
        """

    @abc.abstractmethod
    def logits(self, x: jax.Array) -> jax.Array:
        """[..., hidden] -> [..., vocab]."""

    def __call__(self, input_ids: jax.Array) -> jax.Array:
        """input_ids i32[batch, seq] -> logits [batch, seq, vocab]."""
        return self.logits(self.hidden(input_ids)[0])


class CausalGenerator(GreedyModel):
    """A `Decoder` that generates."""

    def prefill(self, params: Any, input_ids: jax.Array) -> tuple[jax.Array, Cache]:
        """See `GenerationModel.prefill`."""
        decoder = self.module(params)
        x, layers = decoder.hidden(input_ids)
        room = ((0, 0), (0, 0), (0, self.max_new_tokens), (0, 0))
        cache = tuple((jnp.pad(keys, room), jnp.pad(values, room)) for keys, values in layers)
        return at_least_float32(decoder.logits(x[:, -1])), cache

    def decode(
        self, params: Any, token: jax.Array, position: jax.Array, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        """See `GenerationModel.decode`."""
        decoder = self.module(params)
        x, cache = decoder.hidden(token[:, None], position, cache)
        return at_least_float32(decoder.logits(x[:, -1])), cache


def creator(
    architecture: Architecture, build: Callable[[Mapping[str, Any], nnx.Rngs], Decoder]
) -> Callable[..., FlaxModel]:
    """Returns a `create_model` whose models generate if `max_new_tokens` is given, or score."""

    def model(parameters: Parameters) -> FlaxModel:
        kind = FlaxModel if max_new_tokens(parameters) is None else CausalGenerator
        return kind(architecture, parameters, build)

    return shared_model.creator(architecture, model)


def at_least_float32(x: jax.Array) -> jax.Array:
    """Returns 16-bit numbers as float32, others unchanged."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    position: jax.Array | int = 0,
    cache: LayerCache | None = None,
) -> tuple[jax.Array, LayerCache]:
    """Causal attention; several heads of the query may share a head of key and value.

    Scores and their softmax are at least float32, as in fused attention kernels.

    Args:
      query: [batch, heads, seq, head_dim].
      key: [batch, key heads, seq, head_dim].
      value: of the same shape.
      position: position of the first token.
      cache: earlier keys and values, with room for the new ones.

    Returns:
      [batch, seq, heads * head_dim], and keys and values including the new ones.
    """
    batch, heads, seq, size = query.shape
    if cache is not None:
        key, value = (
            jax.lax.dynamic_update_slice_in_dim(old, new, position, axis=2)
            for old, new in zip(cache, (key, value))
        )
    key_heads, length = key.shape[1:3]
    # Heads that share a key become rows of one product, so keys are not repeated.
    grouped = query.reshape(batch, key_heads, heads // key_heads * seq, size)
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = jnp.einsum("bkqd,bkld->bkql", grouped, key, preferred_element_type=wide)
    scores = scores.reshape(batch, key_heads, heads // key_heads, seq, length) * size**-0.5
    places = jnp.arange(length, dtype=jnp.int32)
    visible = places <= position + jnp.arange(seq, dtype=jnp.int32)[:, None]
    probabilities = jax.nn.softmax(jnp.where(visible, scores, jnp.finfo(wide).min), axis=-1)
    probabilities = probabilities.astype(value.dtype).reshape(*grouped.shape[:3], length)
    context = product("bkql,bkld->bkqd", probabilities, value)
    context = context.reshape(batch, heads, seq, size).swapaxes(1, 2)
    return context.reshape(batch, seq, heads * size), (key, value)


def split_heads(x: jax.Array, size: int) -> jax.Array:
    """[batch, seq, heads * size] -> [batch, heads, seq, size]."""
    batch, seq, width = x.shape
    return x.reshape(batch, seq, width // size, size).swapaxes(1, 2)


class RmsNorm(nnx.Module):
    """Root mean square norm (Zhang and Sennrich 2019, arXiv:1910.07467).

    Gemma scales by 1 + weight before the result is rounded to the model's type; Llama scales by the
    weight after.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.scale = nnx.Param(jnp.ones(config["hidden_size"]))
        self.epsilon = config["rms_norm_eps"]
        self.around_one = config["model_type"] == "gemma"

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., hidden], same shape and type out."""
        wide, scale = at_least_float32(x), self.scale[...]
        mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(mean_square + self.epsilon)
        if self.around_one:
            return (wide * (1 + at_least_float32(scale))).astype(x.dtype)
        return wide.astype(x.dtype) * scale


class Attention(nnx.Module):
    """Causal attention with rotary positions; query heads share keys and values in groups."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden, self.head_size = config["hidden_size"], config["head_dim"]
        queries = config["num_attention_heads"] * self.head_size
        keys = config["num_key_value_heads"] * self.head_size
        self.query = Linear(hidden, queries, use_bias=False, rngs=rngs)
        self.key = Linear(hidden, keys, use_bias=False, rngs=rngs)
        self.value = Linear(hidden, keys, use_bias=False, rngs=rngs)
        self.output = Linear(queries, hidden, use_bias=False, rngs=rngs)

    def __call__(
        self, x: jax.Array, rotation: Rotation, position: jax.Array | int, cache: LayerCache | None
    ) -> tuple[jax.Array, LayerCache]:
        """[batch, seq, hidden], same shape out, and keys and values."""
        query, key, value = (
            split_heads(part(x), self.head_size) for part in (self.query, self.key, self.value)
        )
        query, key = rotate(query, rotation), rotate(key, rotation)
        context, cache = attention(query, key, value, position, cache)
        return self.output(context), cache


class Layer(nnx.Module):
    """Attention and gated feed-forward, each after a norm, added to its input."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.attention_norm = RmsNorm(config)
        self.attention = Attention(config, rngs)
        self.norm = RmsNorm(config)
        self.gate = Linear(hidden, intermediate, use_bias=False, rngs=rngs)
        self.up = Linear(hidden, intermediate, use_bias=False, rngs=rngs)
        self.down = Linear(intermediate, hidden, use_bias=False, rngs=rngs)
        self.activation = ACTIVATIONS[config["hidden_act"]]

    def __call__(
        self, x: jax.Array, rotation: Rotation, position: jax.Array | int, cache: LayerCache | None
    ) -> tuple[jax.Array, LayerCache]:
        """[batch, seq, hidden], same shape out, and keys and values."""
        context, cache = self.attention(self.attention_norm(x), rotation, position, cache)
        x = x + context
        y = self.norm(x)
        return x + self.down(self.activation(self.gate(y)) * self.up(y)), cache


class RotaryDecoder(Decoder):
    """Embedding, layers, norm, head; a tied head shares the token embeddings."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden, vocabulary = config["hidden_size"], config["vocab_size"]
        self.frequencies = tuple(rotary_frequencies(config))
        self.words = nnx.Embed(vocabulary, hidden, rngs=rngs)
        self.word_scale = hidden**0.5 if config["model_type"] == "gemma" else None
        self.layers = nnx.List([Layer(config, rngs) for _ in range(config["num_hidden_layers"])])
        self.norm = RmsNorm(config)
        tied = config["tie_word_embeddings"]
        self.head = (
            None if tied else nnx.data(Linear(hidden, vocabulary, use_bias=False, rngs=rngs))
        )

    def hidden(
        self, tokens: jax.Array, position: jax.Array | int = 0, cache: Cache | None = None
    ) -> tuple[jax.Array, Cache]:
        """See `Decoder.hidden`."""
        # Index the table directly, because `nnx.Embed` computes in the type it was built with, not
        # in the weights' type.
        x = self.words.embedding[...][tokens]
        if self.word_scale is not None:
            x = x * jnp.asarray(self.word_scale, x.dtype)
        positions = position + jnp.arange(tokens.shape[1], dtype=jnp.int32)
        wide = jnp.promote_types(x.dtype, jnp.float32)
        angles = positions[:, None].astype(wide) * jnp.asarray(self.frequencies, wide)
        rotation = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
        layers = []
        for index, layer in enumerate(self.layers):
            x, new = layer(x, rotation, position, None if cache is None else cache[index])
            layers.append(new)
        return self.norm(x), tuple(layers)

    def logits(self, x: jax.Array) -> jax.Array:
        """See `Decoder.logits`."""
        if self.head is not None:
            return self.head(x)
        return product("...h,vh->...v", x, self.words.embedding[...])


def rotate(x: jax.Array, rotation: Rotation) -> jax.Array:
    """Rotates pairs of numbers half a head apart by their angles; [batch, heads, seq, head_dim]."""
    cosine, sine = rotation
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        [first * cosine - second * sine, second * cosine + first * sine], axis=-1
    )
