"""What a model must offer whose own code is what is timed, and not its `forward` on our inputs.

A foreign benchmark loops, prepares and steps as its authors wrote it, on tensors that it made
itself. Backends that run it ask it for the tensors to write inputs to, for what is timed, and for
the outputs of a run; `forward` is the same as a function of its inputs, for those that export.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any

from comparative_benchmark.backends.api import Array
from openxla.benchmark.models.model_interfaces import InferenceModel


class ForeignModel(InferenceModel):
    """A model that runs itself; PyTorch alone.

    Attributes:
      replayed: whether `outputs_of` runs the iterations that are judged.
    """

    replayed: bool = False

    @abc.abstractmethod
    def reside(self, inputs: Sequence[Array]) -> tuple[Any, ...]:
        """Writes inputs into the tensors that the foreign code reads, and returns these."""

    @abc.abstractmethod
    def timed(self, *inputs: Any) -> Any:
        """Runs one iteration on what resides; returns a handle on its outputs."""

    @abc.abstractmethod
    def outputs_of(self, handle: Any) -> tuple[Any, ...]:
        """Returns the tensors that a run is judged by; never timed."""

    @abc.abstractmethod
    def compile_in_place(self, compile_part: Callable[[Callable[..., Any]], Any]) -> None:
        """Replaces the module that the foreign code calls by a compiled one.

        Args:
          compile_part: `torch.compile` with a backend.

        Raises:
          UnsupportedError: it calls nothing that can be compiled apart.
        """

    @abc.abstractmethod
    def judged_by(self, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """Returns truth and reference of a run on inputs; see `backends.api.Reference`."""

    @abc.abstractmethod
    def notes(self) -> dict[str, Any]:
        """Returns what results tell of how it was run: plain JSON values."""
