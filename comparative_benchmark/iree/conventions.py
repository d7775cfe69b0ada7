"""Names that compiled programs and their callers share."""

from typing import Any

import numpy.typing as npt

PARAMETER_SCOPE = "model"
"""Scope under which a program looks its weights up; the runtime provides the archive under it."""

ENTRY = "main"

_TYPES = {"bfloat16": "bf16", "bool": "i1"}
# Archives store unsigned integers as their bytes, which is what signless types read.
_LETTERS = {"f": "f", "i": "i", "u": "i"}


def type_of(value: npt.NDArray[Any]) -> str:
    """Returns shape and element type of an array in IREE's notation, e.g. `1x8xbf16`."""
    dtype = value.dtype
    kind = _TYPES.get(dtype.name) or f"{_LETTERS[dtype.kind]}{dtype.itemsize * 8}"
    return "".join(f"{size}x" for size in value.shape) + kind
