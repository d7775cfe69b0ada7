"""Prefill and decode of a model as two functions of its framework, with the state between them."""

from collections.abc import Callable, Sequence
from typing import Any

from comparative_benchmark.backends.api import Array, GenerationParts

# Tokens that were chosen, i32[batch], the logits that they were chosen by, and the cache.
Step = tuple[Any, Any, Any]


class FunctionParts(GenerationParts):
    """Calls two functions, which choose the token as well.

    Args:
      prefill: reads the prompts.
      decode: reads tokens at a position, given the cache.
      positions: of each step, as `decode` takes them.
      wait: waits until tokens and logits are complete.
      to_host: copies an array of the framework to the host.
    """

    def __init__(
        self,
        prefill: Callable[[], Step],
        decode: Callable[[Any, Any, Any], Step] | None,
        positions: Sequence[Any],
        *,
        wait: Callable[[Any], object],
        to_host: Callable[[Any], Array],
    ) -> None:
        self.steps = len(positions)
        self._prefill: Any = prefill
        self._decode: Any = decode
        self._positions = positions
        self._wait, self._to_host = wait, to_host
        self._next = 0
        self._token: Any = None
        self._cache: Any = None

    def prefill(self) -> Any:
        """See `GenerationParts.prefill`."""
        self._token, logits, self._cache = self._prefill()
        self._next = 0
        return self._token, logits

    def decode(self) -> Any:
        """See `GenerationParts.decode`."""
        position = self._positions[self._next % self.steps]
        self._next += 1
        self._token, logits, self._cache = self._decode(self._token, position, self._cache)
        return self._token, logits

    def synchronize(self, handle: Any) -> None:
        """Waits until both are complete."""
        self._wait(handle)

    def fetch(self, handle: Any) -> tuple[Array, Array]:
        """Copies tokens and logits to the host."""
        tokens, logits = handle
        return self._to_host(tokens), self._to_host(logits)
