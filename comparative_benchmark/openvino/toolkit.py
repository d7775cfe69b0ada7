"""The module `openvino`, imported without its telemetry.

A conversion would start threads that report it to a server of Intel's, which would disturb a
measured process. Without the package `openvino_telemetry` OpenVINO uses a stand-in that does
nothing.
"""

import sys
from typing import Any

import ml_dtypes
import numpy as np

if "openvino_telemetry" not in sys.modules:
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # "not installed"

import openvino as ov

__all__ = ["VERSION", "dtype_of", "element_type", "ov"]

# Without the number and branch of the build, which follow after a dash.
VERSION: str = ov.get_version().partition("-")[0]


def element_type(name: str) -> Any:
    """Returns the `openvino.Type` of an element type, by NumPy's name."""
    return ov.Type.bf16 if name == "bfloat16" else ov.Type(np.dtype(name))


def dtype_of(kind: Any) -> np.dtype[Any]:
    """Returns NumPy's type of an `openvino.Type`; OpenVINO takes bfloat16 for float16."""
    found: np.dtype[Any] = kind.to_dtype()
    return np.dtype(ml_dtypes.bfloat16) if kind == ov.Type.bf16 else found
