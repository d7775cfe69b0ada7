"""From a PyTorch model to ONNX files.

PyTorch is imported by the function that needs it.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparative_benchmark.backends.api import Array, PhaseTimer
from comparative_benchmark.backends.reproducing import program_names
from comparative_benchmark.backends.resident_programs import GenerationPlan
from comparative_benchmark.backends.torch_export import refusing

if TYPE_CHECKING:
    import torch


def write(
    model: Any, inputs: Sequence[Array], directory: Path, phase: PhaseTimer
) -> tuple[list[Path], GenerationPlan | None]:
    """Exports a model (`trace`), translates it (`lower`), and writes it (`load`).

    Returns:
      `model.onnx`; or of a model that generates `prefill.onnx` and `decode.onnx`, and how to call
      them.

    Raises:
      UnsupportedError: the model cannot be exported.
    """
    from comparative_benchmark.backends import generation_export

    exported, plan = generation_export.programs(model, inputs, phase)
    with phase("lower"):
        translated = [to_onnx(program) for program in exported]
    paths = [directory / f"{name}.onnx" for name in program_names(plan)]
    with phase("load"):
        for program, path in zip(translated, paths, strict=True):
            save(program, path)
        # The framework's copy of the weights would count towards the program's memory.
        del model, exported, translated, program
        gc.collect()
    return paths, plan


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
