"""From an exported PyTorch program to an ONNX file.

PyTorch is imported by the function that needs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from comparative_benchmark.backends.torch_export import refusing

if TYPE_CHECKING:
    import torch


def to_onnx(program: torch.export.ExportedProgram) -> torch.onnx.ONNXProgram:
    """Translates an exported program to ONNX, as PyTorch's own exporter does by default.

    Raises:
      UnsupportedError: the program has an operation without translation.
    """
    import torch

    with refusing("PyTorch's ONNX exporter"):
        translated = torch.onnx.export(program, dynamo=True, verbose=False)
    if translated is None:
        raise RuntimeError("torch.onnx.export returned no program")
    return translated


def save(program: torch.onnx.ONNXProgram, path: Path) -> None:
    """Writes an ONNX file, and its weights to a file of the same name and `.data` beside it.

    ONNX files end at 2 GB; with weights apart the file itself is small whatever the model.
    """
    program.save(path, external_data=True)
