"""Eager PyTorch with wrong outputs; see `spoiled`."""

from collections.abc import Sequence
from typing import Any

from comparative_benchmark.backend_api import Array
from comparative_benchmark.pt_inductor.backend import PtInductor


class Spoiled(PtInductor):
    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        self._way = self.context.compiler
        object.__setattr__(self.context, "compiler", "eager")
        super().load(model, inputs)
        self._first: Any = None

    def dispatch(self) -> Any:
        if self._way == "zeros":
            return super().dispatch()
        if self._first is None:
            self._first = super().dispatch().clone()
        return self._first

    def poison_outputs(self) -> None:
        """Its private state."""

    def fetch(self, outputs: Any) -> list[Any]:
        found = super().fetch(outputs)
        if self._way == "zeros":
            return [value * (value < -1e8) for value in found]
        return found
