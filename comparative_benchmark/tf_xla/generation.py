"""Prefill and decode of a TensorFlow model, apart."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from comparative_benchmark.backends.api import Array, GenerationParts

# Tokens that were chosen, i32[batch], and the logits that they were chosen by.
Chosen = tuple[tf.Tensor, tf.Tensor]


class TfGenerationParts(GenerationParts):
    """Compiles `prefill` and `decode`, each with the choice of the token, by a first call.

    TensorFlow takes no argument for good: a `decode` copies the cache for each token, which
    the loop of a whole generation need not do.

    Args:
      model: a `GenerationModel`.
      inputs: its resident inputs.
      compiled: returns a function as the backend's compiler runs it, given example arguments.
      synchronize: waits for all that was started.
    """

    def __init__(
        self,
        model: Any,
        inputs: Sequence[tf.Tensor],
        compiled: Callable[..., Callable[..., Any]],
        synchronize: Callable[[Any], None],
    ) -> None:
        def prefill(*inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Any]:
            logits, cache = model.prefill(*inputs)
            return _choose(logits), logits, cache

        def decode(
            token: tf.Tensor, position: tf.Tensor, cache: Any
        ) -> tuple[tf.Tensor, tf.Tensor, Any]:
            logits, cache = model.decode(token, position, cache)
            return _choose(logits), logits, cache

        self.steps = model.max_new_tokens - 1
        self._synchronize = synchronize
        self._inputs = inputs
        first = model.first_position(*inputs)
        with tf.device(inputs[0].device):
            self._positions = [tf.constant(first + index, tf.int32) for index in range(self.steps)]
        self._next = 0
        self._prefill = compiled(prefill, *inputs)
        self._token, logits, self._cache = self._prefill(*inputs)
        self._decode: Any = None
        if self.steps:
            self._decode = compiled(decode, self._token, self._positions[0], self._cache)
            _, logits, _ = self._decode(self._token, self._positions[0], self._cache)
        synchronize(logits)

    def prefill(self) -> Chosen:
        """See `GenerationParts.prefill`."""
        self._token, logits, self._cache = self._prefill(*self._inputs)
        self._next = 0
        return self._token, logits

    def decode(self) -> Chosen:
        """See `GenerationParts.decode`."""
        position = self._positions[self._next % self.steps]
        self._next += 1
        self._token, logits, self._cache = self._decode(self._token, position, self._cache)
        return self._token, logits

    def synchronize(self, handle: Chosen) -> None:
        """Waits until both are complete."""
        self._synchronize(handle)

    def fetch(self, handle: Chosen) -> tuple[Array, Array]:
        """Copies tokens and logits to the host."""
        tokens, logits = handle
        return tokens.numpy(), logits.numpy()


def _choose(logits: tf.Tensor) -> tf.Tensor:
    return tf.argmax(logits, axis=-1, output_type=tf.int32)
