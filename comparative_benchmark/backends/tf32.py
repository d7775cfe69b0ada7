"""TF32: NVIDIA's tensor cores round float32 factors to ten bits of fraction, where that is allowed.

Stacks differ in whether they allow it, and so in what they measure. Every backend that can use a
GPU turns it off for models of float32 and says so in `facts.notes["tf32"]`.
"""

import os
from collections.abc import Iterable

# By it NVIDIA's libraries follow a user, whatever a program asks of them: 1 allows, 0 forbids.
_OVERRIDE = "NVIDIA_TF32_OVERRIDE"


def note(*, on_gpu: bool, types: Iterable[str], allowed: bool | None) -> bool | None:
    """Returns what a backend notes: whether factors of float32 may be rounded to TF32.

    Args:
      on_gpu: whether the program runs on a GPU.
      types: names of the element types of weights and inputs, as NumPy has them.
      allowed: whether the stack was left free to do so; None where it does not tell.

    Returns:
      None where there is no GPU, nothing of float32, or nobody knows.
    """
    if not on_gpu or "float32" not in types:
        return None
    return True if os.environ.get(_OVERRIDE) == "1" else allowed


def is_float32(types: Iterable[str]) -> bool:
    """Tells whether float32 is the only floating-point type among names of element types."""
    return {name for name in types if "float" in name} == {"float32"}
