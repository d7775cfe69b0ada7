"""A backend and a model that do nothing, to measure the harness by itself in a real worker."""

from collections.abc import Sequence
from typing import Any

from comparative_benchmark.backends.api import Array, Backend, BackendFacts


class EmptyModel:
    """Takes no inputs and has no outputs."""

    def forward(self) -> tuple[()]:
        """Returns nothing."""
        return ()


def create_model() -> EmptyModel:
    """Returns the model; workers call this function."""
    return EmptyModel()


class Empty(Backend):
    """Backend whose calls return at once."""

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        """Nothing to load."""

    def compile(self) -> None:
        """Nothing to compile."""

    def dispatch(self) -> Any:
        """Nothing to start."""
        return None

    def synchronize(self, outputs: Any) -> None:
        """Nothing to wait for."""

    def fetch(self, outputs: Any) -> list[Any]:
        """Nothing to fetch."""
        return []

    def facts(self) -> BackendFacts:
        """Returns empty facts."""
        return BackendFacts()
