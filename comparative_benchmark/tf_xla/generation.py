"""Prefill and decode of a TensorFlow model as separate programs."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from comparative_benchmark.backends.api import GenerationParts
from comparative_benchmark.backends.model_protocols import FunctionParts, Step


def parts(
    model: Any,
    inputs: Sequence[tf.Tensor],
    compiled: Callable[..., Callable[..., Any]],
    synchronize: Callable[[Any], None],
) -> GenerationParts:
    """Compiles `prefill` and `decode`, each with the choice of the token, by a first call.

    TensorFlow cannot donate arguments: `decode` copies the cache for each token, which the loop of
    a whole generation need not do.

    Args:
      model: a `GenerationModel`.
      inputs: its resident inputs.
      compiled: returns a function in the form that the backend's compiler runs, given example
        arguments.
      synchronize: waits for all work that was started.
    """

    def prefill(*inputs: tf.Tensor) -> Step:
        return _chosen(*model.prefill(*inputs))

    def decode(token: tf.Tensor, position: tf.Tensor, cache: Any) -> Step:
        return _chosen(*model.decode(token, position, cache))

    first = model.first_position(*inputs)
    with tf.device(inputs[0].device):
        steps = range(model.max_new_tokens - 1)
        positions = [tf.constant(first + index, tf.int32) for index in steps]
    compiled_prefill = compiled(prefill, *inputs)
    compiled_decode = None
    token, logits, cache = compiled_prefill(*inputs)
    if positions:
        compiled_decode = compiled(decode, token, positions[0], cache)
        _, logits, _ = compiled_decode(token, positions[0], cache)
    synchronize(logits)
    return FunctionParts(
        functools.partial(compiled_prefill, *inputs),
        compiled_decode,
        positions,
        wait=synchronize,
        to_host=lambda value: value.numpy(),
    )


def _chosen(logits: tf.Tensor, cache: Any) -> Step:
    return tf.argmax(logits, axis=-1, output_type=tf.int32), logits, cache
