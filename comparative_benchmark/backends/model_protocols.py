"""Protocols that a model may implement: its own timed code, and generation in two parts."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

from comparative_benchmark.backends.api import Array, GenerationParts
from openxla.benchmark.models.model_interfaces import InferenceModel


class ForeignModel(InferenceModel):
    """A model that runs itself; PyTorch only.

    Attributes:
      replayed: whether `outputs_of` runs the iterations that are verified.
    """

    replayed: bool = False

    @abc.abstractmethod
    def reside(self, inputs: Sequence[Array]) -> tuple[Any, ...]:
        """Writes inputs into the tensors that the foreign code reads, and returns these tensors."""

    @abc.abstractmethod
    def timed(self, *inputs: Any) -> Any:
        """Runs one iteration on the resident inputs; returns a handle on its outputs."""

    @abc.abstractmethod
    def outputs_of(self, handle: Any) -> tuple[Any, ...]:
        """Returns the tensors to verify; never timed."""

    @abc.abstractmethod
    def compile_in_place(self, compile_part: Callable[[Callable[..., Any]], Any]) -> None:
        """Replaces the module that the foreign code calls by a compiled one.

        Args:
          compile_part: `torch.compile` with a backend.

        Raises:
          UnsupportedError: the code calls nothing that can be compiled separately.
        """

    @abc.abstractmethod
    def judged_by(self, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """Returns truth and reference of a run on inputs; see `backends.api.Reference`."""

    @abc.abstractmethod
    def notes(self) -> dict[str, Any]:
        """Returns details of the run for results, as plain JSON values."""


# Chosen tokens i32[batch], the logits that they were chosen by, and the cache.
Step = tuple[Any, Any, Any]


class FunctionParts(GenerationParts):
    """Calls two functions that also choose the tokens.

    Args:
      prefill: reads the prompts.
      decode: reads tokens at a position, given the cache.
      positions: position of each step, as `decode` takes it.
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
