"""Decoder-only language models in TensorFlow: scoring, greedy generation, and Llama's decoder.

The key-value cache holds keys and values as [batch, heads, length, head_dim], the layout that
attention needs. While the prompt is read, attention only covers the prompt, not the empty
positions. Gemma uses Llama's decoder, too.
"""

import abc
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import keras
import tensorflow as tf

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.base import integer
from openxla.benchmark.models.architectures.causal_lm import rotary_frequencies
from openxla.benchmark.models.model_interfaces import GenerationModel, max_new_tokens
from openxla.benchmark.models.tf.keras_model import Build, KerasModel
from openxla.benchmark.models.tf.layers import Layer, Linear, merge_heads, split_heads
from openxla.benchmark.models.tf.operations import at_least_float32, gelu_tanh, matmul

# Keys and values of one layer, [batch, heads, length, head_size].
LayerCache = tuple[tf.Tensor, tf.Tensor]
Cache = tuple[LayerCache, ...]

# Cosines and sines of the positions, [seq, head_dim / 2].
Rotation = tuple[tf.Tensor, tf.Tensor]

ACTIVATIONS: Mapping[str, Callable[[tf.Tensor], tf.Tensor]] = MappingProxyType(
    {"silu": tf.nn.silu, "gelu_pytorch_tanh": gelu_tanh}
)


def insert(cache: LayerCache, new: LayerCache, position: tf.Tensor) -> LayerCache:
    """Returns keys and values of a layer with new ones written at a position."""
    start = (0, 0, position, 0)
    keys, values = (
        keras.ops.slice_update(old, start, part) for old, part in zip(cache, new, strict=True)
    )
    return keys, values


class GreedyModel(KerasModel, GenerationModel):
    """A generating model; `forward` and `generate` are the same function."""

    def __init__(self, architecture: Architecture, parameters: Parameters, build: Build) -> None:
        super().__init__(architecture, parameters, build)
        self.max_new_tokens = integer(parameters, "max_new_tokens")
        self._prompt_inputs = len(architecture.input_specs(parameters))

    def generate(self, *inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """See `GenerationModel.generate`; one program with a loop."""
        prompt, given = inputs[: self._prompt_inputs], inputs[self._prompt_inputs :]
        position = self.first_position(*prompt)
        logits, cache = self.prefill(*prompt)
        new = self.max_new_tokens
        chosen = tf.TensorArray(tf.int32, size=new, element_shape=logits.shape[:1])
        scores = tf.TensorArray(logits.dtype, size=new, element_shape=logits.shape)

        def step(
            index: tf.Tensor, logits: tf.Tensor, cache: Any, chosen: Any, scores: Any
        ) -> tuple[Any, ...]:
            token = _choose(logits)
            fed = given[0][:, index] if given else token
            after, cache = self.decode(fed, position + index, cache)
            return index + 1, after, cache, chosen.write(index, token), scores.write(index, logits)

        # All but the last token are fed; the last is only chosen.
        steps = new - 1
        _, logits, _, chosen, scores = tf.while_loop(
            lambda index, *_: index < steps,
            step,
            (tf.constant(0, tf.int32), logits, cache, chosen, scores),
            maximum_iterations=steps,
        )
        tokens = chosen.write(steps, _choose(logits)).stack()
        all_logits = scores.write(steps, logits).stack()
        return tf.transpose(tokens), tf.transpose(all_logits, (1, 0, 2))

    def forward(self, *inputs: Any) -> Any:
        """Generates."""
        return self.generate(*map(tf.convert_to_tensor, inputs))


def _choose(logits: tf.Tensor) -> tf.Tensor:
    """[batch, vocab] -> i32[batch]."""
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


class Decoder(Layer):
    """Base of the decoders: tokens to hidden states, hidden states to logits."""

    @abc.abstractmethod
    def hidden(
        self, tokens: tf.Tensor, position: tf.Tensor | int = 0, cache: Cache | None = None
    ) -> tuple[tf.Tensor, Cache]:
        """Token ids i32[batch, seq] -> [batch, seq, hidden], and the keys and values of each layer.

        Without a cache, the tokens start at position 0 and attend to each other. With one, they are
        written into it from `position` on and attend to everything up to themselves.
        """

    @abc.abstractmethod
    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """[..., hidden] -> [..., vocab]."""

    def call(self, input_ids: tf.Tensor) -> tf.Tensor:
        """input_ids i32[batch, seq] -> logits [batch, seq, vocab]."""
        return self.logits(self.hidden(input_ids)[0])


class CausalGenerator(GreedyModel):
    """A `Decoder` that generates."""

    def prefill(self, input_ids: tf.Tensor) -> tuple[tf.Tensor, Cache]:
        """See `GenerationModel.prefill`."""
        x, layers = self.layer.hidden(input_ids)
        room = ((0, 0), (0, 0), (0, self.max_new_tokens), (0, 0))
        cache = tuple((tf.pad(keys, room), tf.pad(values, room)) for keys, values in layers)
        return widened(self.layer.logits(x[:, -1])), cache

    def decode(
        self, token: tf.Tensor, position: tf.Tensor, cache: Cache
    ) -> tuple[tf.Tensor, Cache]:
        """See `GenerationModel.decode`; the given cache is not modified."""
        x, cache = self.layer.hidden(token[:, tf.newaxis], position, cache)
        return widened(self.layer.logits(x[:, -1])), cache


def creator(
    architecture: Architecture, build: Callable[[Mapping[str, Any]], Decoder]
) -> Callable[..., KerasModel]:
    """Returns a `create_model` whose models generate if `max_new_tokens` is given, or score."""

    def model(parameters: Parameters) -> KerasModel:
        kind = KerasModel if max_new_tokens(parameters) is None else CausalGenerator
        return kind(architecture, parameters, build)

    return shared_model.creator(architecture, model)


def widened(x: tf.Tensor) -> tf.Tensor:
    """Returns 16-bit numbers as float32, others unchanged."""
    return tf.cast(x, at_least_float32(x.dtype))


def tied_head(x: tf.Tensor, words: Any) -> tf.Tensor:
    """[..., hidden] and the table of tokens [vocab, hidden] -> [..., vocab]."""
    # As one matrix product; leading dimensions would make it a batch of small ones.
    rows = tf.reshape(x, (-1, x.shape[-1]))
    return tf.reshape(matmul(rows, words, transpose_b=True), (*x.shape[:-1], words.shape[0]))


def attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    position: tf.Tensor | int = 0,
    cache: LayerCache | None = None,
) -> tuple[tf.Tensor, LayerCache]:
    """Causal attention; several heads of the query may share a head of key and value.

    Its softmax is at least float32.

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
        key, value = insert(cache, (key, value), position)
    key_heads, length = key.shape[1:3]
    # Heads that share a key become rows of one product, so keys are not repeated.
    grouped = tf.reshape(query, (batch, key_heads, heads // key_heads * seq, size))
    scores = widened(matmul(grouped, key, transpose_b=True)) * size**-0.5
    scores = tf.reshape(scores, (batch, heads, seq, length))
    visible = tf.range(length) <= position + tf.range(seq)[:, tf.newaxis]
    scores = tf.where(visible, scores, tf.constant(scores.dtype.min, scores.dtype))
    probabilities = tf.cast(tf.nn.softmax(scores), value.dtype)
    probabilities = tf.reshape(probabilities, (*grouped.shape[:3], length))
    context = tf.reshape(matmul(probabilities, value), (batch, heads, seq, size))
    return merge_heads(context), (key, value)


class RmsNorm(Layer):
    """Root mean square norm (Zhang and Sennrich 2019, arXiv:1910.07467); variable `scale`.

    `around_one`: Gemma scales by 1 + weight before the result is rounded to the model's type; Llama
    and T5 scale by the weight after.
    """

    def __init__(self, size: int, epsilon: float, *, around_one: bool = False) -> None:
        super().__init__()
        self.epsilon, self.around_one = epsilon, around_one
        self.scale = self.weight(size)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[..., size], same shape and type out."""
        wide = widened(x)
        mean_square = tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True)
        wide *= tf.math.rsqrt(mean_square + self.epsilon)
        if self.around_one:
            return tf.cast(wide * (1 + tf.cast(self.scale, wide.dtype)), x.dtype)
        return tf.cast(wide, x.dtype) * self.scale


class Attention(Layer):
    """Causal attention with rotary positions; query heads share keys and values in groups."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, self.head_size = config["hidden_size"], config["head_dim"]
        queries = config["num_attention_heads"] * self.head_size
        keys = config["num_key_value_heads"] * self.head_size
        self.query = Linear(hidden, queries, bias=False)
        self.key = Linear(hidden, keys, bias=False)
        self.value = Linear(hidden, keys, bias=False)
        self.output_ = Linear(queries, hidden, bias=False)

    def call(
        self,
        x: tf.Tensor,
        rotation: Rotation,
        *,
        position: tf.Tensor | int,
        cache: LayerCache | None,
    ) -> tuple[tf.Tensor, LayerCache]:
        """[batch, seq, hidden], same shape out, and keys and values."""
        query, key, value = (
            split_heads(part(x), self.head_size) for part in (self.query, self.key, self.value)
        )
        query, key = rotate(query, rotation), rotate(key, rotation)
        context, cache = attention(query, key, value, position, cache)
        return self.output_(context), cache


class DecoderLayer(Layer):
    """Attention and gated feed-forward, each after a norm, added to its input."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.attention_norm = _norm(config)
        self.attention = Attention(config)
        self.norm = _norm(config)
        self.gate = Linear(hidden, intermediate, bias=False)
        self.up = Linear(hidden, intermediate, bias=False)
        self.down = Linear(intermediate, hidden, bias=False)
        self.activation = ACTIVATIONS[config["hidden_act"]]

    def call(
        self,
        x: tf.Tensor,
        rotation: Rotation,
        *,
        position: tf.Tensor | int,
        cache: LayerCache | None,
    ) -> tuple[tf.Tensor, LayerCache]:
        """[batch, seq, hidden], same shape out, and keys and values."""
        context, cache = self.attention(
            self.attention_norm(x), rotation, position=position, cache=cache
        )
        x += context
        y = self.norm(x)
        return x + self.down(self.activation(self.gate(y)) * self.up(y)), cache


class RotaryDecoder(Decoder):
    """Embedding, layers, norm, head; a tied head shares the token embeddings."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, vocabulary = config["hidden_size"], config["vocab_size"]
        self.frequencies = rotary_frequencies(config)
        self.words = self.weight(vocabulary, hidden)
        self.word_scale = hidden**0.5 if config["model_type"] == "gemma" else None
        self.layers = [DecoderLayer(config) for _ in range(config["num_hidden_layers"])]
        self.norm = _norm(config)
        tied = config["tie_word_embeddings"]
        self.head = None if tied else Linear(hidden, vocabulary, bias=False)

    def hidden(
        self, tokens: tf.Tensor, position: tf.Tensor | int = 0, cache: Cache | None = None
    ) -> tuple[tf.Tensor, Cache]:
        """See `Decoder.hidden`."""
        x = tf.gather(self.words, tokens)
        if self.word_scale is not None:
            x *= tf.constant(self.word_scale, x.dtype)
        wide = at_least_float32(x.dtype)
        places = tf.cast(position + tf.range(tokens.shape[1]), wide)
        angles = places[:, tf.newaxis] * tf.constant(list(self.frequencies), wide)
        rotation = tf.cast(tf.cos(angles), x.dtype), tf.cast(tf.sin(angles), x.dtype)
        layers = []
        for index, layer in enumerate(self.layers):
            earlier = None if cache is None else cache[index]
            x, new = layer(x, rotation, position=position, cache=earlier)
            layers.append(new)
        return self.norm(x), tuple(layers)

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """See `Decoder.logits`."""
        return tied_head(x, self.words) if self.head is None else self.head(x)


def rotate(x: tf.Tensor, rotation: Rotation) -> tf.Tensor:
    """Rotates pairs of numbers half a head apart by their angles; [batch, heads, seq, head_dim]."""
    cosine, sine = rotation
    first, second = tf.split(x, 2, axis=-1)
    return tf.concat([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def _norm(config: Mapping[str, Any]) -> RmsNorm:
    around_one = config["model_type"] == "gemma"
    return RmsNorm(config["hidden_size"], config["rms_norm_eps"], around_one=around_one)
