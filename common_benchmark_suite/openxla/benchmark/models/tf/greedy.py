"""Greedy generation in TensorFlow: the loop, and the key-value cache that it carries."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

# Keys and values of one layer, [batch, heads, length, head_size].
LayerCache = tuple[tf.Tensor, tf.Tensor]
Cache = tuple[LayerCache, ...]


def insert(cache: LayerCache, new: LayerCache, position: tf.Tensor) -> LayerCache:
    """Returns keys and values of a layer with new ones written at a position."""
    start = (0, 0, position, 0)
    keys, values = (
        keras.ops.slice_update(old, start, part) for old, part in zip(cache, new, strict=True)
    )
    return keys, values


def continue_greedily(
    decode: Callable[[tf.Tensor, tf.Tensor, Any], tuple[tf.Tensor, Any]],
    prefilled: tuple[tf.Tensor, Any],
    *,
    position: int,
    new: int,
    forced_tokens: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Chooses tokens one at a time, in a single loop of the program.

    Args:
      decode: `GenerationModel.decode`.
      prefilled: what `GenerationModel.prefill` returned.
      position: position of the first new token.
      new: number of tokens to choose.
      forced_tokens: i32[batch, new], the tokens to feed instead of the chosen ones.

    Returns:
      As `GenerationModel.generate`.
    """
    logits, cache = prefilled
    chosen = tf.TensorArray(tf.int32, size=new, element_shape=logits.shape[:1])
    scores = tf.TensorArray(logits.dtype, size=new, element_shape=logits.shape)

    def step(
        index: tf.Tensor, logits: tf.Tensor, cache: Any, chosen: Any, scores: Any
    ) -> tuple[Any, ...]:
        token = _choose(logits)
        fed = token if forced_tokens is None else forced_tokens[:, index]
        after, cache = decode(fed, position + index, cache)
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


def _choose(logits: tf.Tensor) -> tf.Tensor:
    """[batch, vocab] -> i32[batch]."""
    return tf.argmax(logits, axis=-1, output_type=tf.int32)
