"""From a PyTorch model to ONNX files.

PyTorch is imported by the function that needs it.
"""

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import Array, PhaseTimer
from comparative_benchmark.backends.reproducing import program_names
from comparative_benchmark.backends.resident_programs import GenerationPlan
from comparative_benchmark.backends.torch_export import refusing


def write(
    model: Any, inputs: Sequence[Array], directory: Path, phase: PhaseTimer
) -> tuple[list[Path], GenerationPlan | None]:
    """Exports a model (`trace`), translates it (`lower`), and writes it (`load`).

    ONNX files end at 2 GB: the weights go to a file of the same name and `.data` beside it, and the
    file itself is small whatever the model.

    Returns:
      `model.onnx`; or of a model that generates `prefill.onnx` and `decode.onnx`, and how to call
      them.

    Raises:
      UnsupportedError: the model cannot be exported, or has an operation without translation.
    """
    import torch

    from comparative_benchmark.backends import generation_export

    exported, plan = generation_export.programs(model, inputs, phase)
    with phase("lower"), refusing("PyTorch's ONNX exporter"):
        translated: list[Any] = [
            torch.onnx.export(program, dynamo=True, verbose=False) for program in exported
        ]
    paths = [directory / f"{name}.onnx" for name in program_names(plan)]
    with phase("load"):
        for program, path in zip(translated, paths, strict=True):
            program.save(path, external_data=True)
        # The framework's copy of the weights would count towards the program's memory.
        del model, exported, translated, program
        gc.collect()
    return paths, plan
