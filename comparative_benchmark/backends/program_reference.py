"""Truth and reference of an exported program, which says itself how it is judged."""

from collections.abc import Sequence
from typing import Any

from comparative_benchmark.backends.api import Array


def compute(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs in float64, and of a plain run in the program's own type.

    See `openxla.benchmark.brought.program_model`.
    """
    found: tuple[list[Any], list[Any]] = model.truth_and_reference(inputs)
    return found
