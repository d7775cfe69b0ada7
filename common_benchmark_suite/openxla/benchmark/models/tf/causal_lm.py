"""Decoder-only language models in TensorFlow, scoring or generating.

The cache holds keys and values as [batch, heads, length, head_dim], the layout that attention
needs. While the prompt is read, attention only covers the prompt, not the empty positions.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.generation import GenerationModel, max_new_tokens
from openxla.benchmark.models.tf.attention import merge_heads
from openxla.benchmark.models.tf.greedy import Cache, LayerCache, continue_greedily, insert
from openxla.benchmark.models.tf.keras_model import KerasModel
from openxla.benchmark.models.tf.layers import Layer
from openxla.benchmark.models.tf.products import at_least_float32, matmul


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


class CausalGenerator(KerasModel, GenerationModel):
    """A `Decoder` that generates; `forward` and `generate` are one function."""

    def __init__(
        self,
        architecture: Architecture,
        parameters: Parameters,
        build: Callable[[Mapping[str, Any]], Decoder],
    ) -> None:
        super().__init__(architecture, parameters, build)
        self.max_new_tokens = max_new_tokens(parameters) or 0

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

    def generate(
        self, input_ids: tf.Tensor, forced_tokens: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """See `GenerationModel.generate`; one program with a loop."""
        return continue_greedily(
            self.decode,
            self.prefill(input_ids),
            position=input_ids.shape[1],
            new=self.max_new_tokens,
            forced_tokens=forced_tokens,
        )

    def forward(self, *inputs: Any) -> Any:
        """Generates."""
        return self.generate(*map(tf.convert_to_tensor, inputs))


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
