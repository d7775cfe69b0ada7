"""Prefill and decode of a PyTorch model, apart."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from comparative_benchmark.backends.api import Array, GenerationParts
from comparative_benchmark.pt_inductor.tensors import to_numpy

# Tokens that were chosen, i32[batch], and the logits that they were chosen by.
Chosen = tuple[torch.Tensor, torch.Tensor]


class PtGenerationParts(GenerationParts):
    """Calls `prefill` and `decode` of the model that was measured, on the same weights.

    `compile_part` is what the backend does to a function; where it compiles by tracing calls, these
    two have been compiled already, as parts of the model.
    """

    def __init__(
        self,
        model: Any,
        inputs: Sequence[torch.Tensor],
        *,
        compile_part: Callable[[Any], Any],
        wait: Callable[[], None],
    ) -> None:
        self.steps = model.max_new_tokens - 1
        self._prefill = compile_part(model.prefill)
        self._decode = compile_part(model.decode)
        self._wait = wait
        self._inputs = inputs
        first = model.first_position(*inputs)
        positions = torch.arange(first, first + self.steps, device=inputs[0].device)
        self._positions = [positions[index : index + 1] for index in range(self.steps)]
        self._next = 0
        self._token: Any = None
        self._cache: Any = None

    def prefill(self) -> Chosen:
        """See `GenerationParts.prefill`."""
        logits, self._cache = self._prefill(*self._inputs)
        self._next = 0
        return self._choose(logits)

    def decode(self) -> Chosen:
        """See `GenerationParts.decode`; the cache is written into."""
        position = self._positions[self._next % self.steps]
        self._next += 1
        logits, self._cache = self._decode(self._token, position, self._cache)
        return self._choose(logits)

    def synchronize(self, handle: Chosen) -> None:
        """Waits for a GPU; on the CPU the call returned completed outputs."""
        self._wait()

    def fetch(self, handle: Chosen) -> tuple[Array, Array]:
        """Copies tokens and logits to the host."""
        tokens, logits = handle
        return to_numpy(tokens), to_numpy(logits)

    def _choose(self, logits: torch.Tensor) -> Chosen:
        self._token = logits.argmax(dim=-1).to(torch.int32)
        return self._token, logits
