"""Exports PyTorch models to ONNX files.

The function that needs PyTorch imports it.
"""

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comparative_benchmark.backends.api import Array, PhaseTimer
from comparative_benchmark.backends.frameworks.torch_export import refusing
from comparative_benchmark.backends.reproducing import program_names
from comparative_benchmark.backends.resident_programs import GenerationPlan

# Metadata key for the indices of complex outputs, which ONNX holds as pairs of numbers.
_COMPLEX_OUTPUTS = "complex_outputs"


def write(
    model: Any, inputs: Sequence[Array], directory: Path, phase: PhaseTimer
) -> tuple[list[Path], GenerationPlan | None]:
    """Exports a model (`trace`), translates it (`lower`), and writes it (`load`).

    ONNX files are limited to 2 GB, so the weights go to a second file with `.data` appended to the
    name, and the first file is small for all models.

    Returns:
      `model.onnx`; or, for a model that generates, `prefill.onnx` and `decode.onnx`, and how to
      call them.

    Raises:
      UnsupportedError: the model cannot be exported, or has an operation without translation.
    """
    import torch

    from comparative_benchmark.backends.frameworks import generation_export

    exported, plan = generation_export.programs(model, inputs, phase)
    with phase("lower"), refusing("PyTorch's ONNX exporter"):
        translated: list[Any] = [
            torch.onnx.export(program, dynamo=True, verbose=False) for program in exported
        ]
        for program, graph in zip(exported, translated, strict=True):
            graph.model.metadata_props.update(_complex_outputs(program))
    paths = [directory / f"{name}.onnx" for name in program_names(plan)]
    with phase("load"):
        for program, path in zip(translated, paths, strict=True):
            program.save(path, external_data=True)
        # The framework's copy of the weights would count towards the program's memory.
        del model, exported, translated, program
        gc.collect()
    return paths, plan


def with_complex_outputs(outputs: Sequence[Array], metadata: Mapping[str, str]) -> list[Array]:
    """Returns outputs, converting pairs to complex numbers if the model's outputs are complex.

    Args:
      outputs: outputs of a graph that `write` has written.
      metadata: metadata of its file.
    """
    places = {int(place) for place in metadata.get(_COMPLEX_OUTPUTS, "").split()}
    return [_from_pairs(value) if place in places else value for place, value in enumerate(outputs)]


def _from_pairs(pairs: Array) -> Array:
    """Returns complex numbers [...] from their real and imaginary parts [..., 2]."""
    wide = np.ascontiguousarray(pairs)
    return wide.view(np.result_type(wide.dtype, np.complex64))[..., 0]


def _complex_outputs(program: Any) -> dict[str, str]:
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    names = program.graph_signature.user_outputs
    kinds = [getattr(values.get(name), "dtype", None) for name in names]
    places = [
        str(place) for place, kind in enumerate(kinds) if kind is not None and kind.is_complex
    ]
    return {_COMPLEX_OUTPUTS: " ".join(places)} if places else {}
