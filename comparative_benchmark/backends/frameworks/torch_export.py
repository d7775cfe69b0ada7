"""Exports PyTorch models with `torch.export`, and on to ONNX files.

For workers of backends that run exported programs. If an exporter fails, the trial ends as
unsupported, with the exporter's reason. The functions that need PyTorch import it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from comparative_benchmark.backends.api import Array, PhaseTimer, UnsupportedError
from comparative_benchmark.backends.exported_programs import program_names
from comparative_benchmark.backends.missing_packages import chain
from comparative_benchmark.backends.resident_programs import GenerationPlan

if TYPE_CHECKING:
    import torch

# torch.export's message if a model keeps its loop out of the program.
_HOST_LOOP = "Non-recursive torch.compiler.disable"
_LONGEST_REASON = 400


def holds_modules(model: Any) -> bool:
    """Returns whether a model holds PyTorch modules; does not import PyTorch."""
    if "torch" not in sys.modules:
        return False
    from comparative_benchmark.backends.frameworks import torch_modules

    return next(torch_modules.of(model), None) is not None


def export(model: Any, inputs: Sequence[Any], phase: PhaseTimer) -> torch.export.ExportedProgram:
    """Exports a model with the shapes and types of its inputs; phase `trace`.

    Args:
      model: a PyTorch model, module or not.
      inputs: one array or tensor for each argument of `forward`.
      phase: times the export.

    Raises:
      UnsupportedError: it is not a PyTorch model, or `torch.export` cannot export it.
    """
    import torch

    from comparative_benchmark.backends.frameworks import torch_modules as modules
    from openxla.benchmark.models.pt.tensors import as_tensor

    if next(modules.of(model), None) is None:
        raise UnsupportedError(
            f"{type(model).__name__} has no torch.nn.Module: only PyTorch models can be exported"
        )
    tensors = tuple(as_tensor(value) for value in inputs)
    with phase("trace"), refusing("torch.export"), torch.no_grad():
        try:
            program = modules.as_module(model)
            if hasattr(program, "exportable"):
                program = program.exportable(tensors)
            return torch.export.export(program, tensors, strict=False)
        except RuntimeError as error:
            if _HOST_LOOP not in str(error):
                raise
            raise UnsupportedError(
                f"{type(model).__name__} loops on the host, and an export would unroll the "
                "loop: instead, measure the models that the loop calls"
            ) from error


@contextmanager
def refusing(tool: str) -> Iterator[None]:
    """Turns errors of an exporter into `UnsupportedError`, except lack of memory.

    The model has run by itself before, so an error here is a limitation of the tool.
    """
    try:
        yield
    except (UnsupportedError, MemoryError):
        raise
    except Exception as error:
        # PyTorch reports a lack of memory by its own error on GPUs, and by a RuntimeError on CPUs.
        if type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error):
            raise
        raise UnsupportedError(f"{tool} does not support this model: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """Returns the type of an error's root cause, and the most informative line of its message.

    This is the first line, joined with the next if it only names a location, or the first item of
    the summary of OpenVINO's front ends.
    """
    error = chain(error, implicit=False)[-1]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    items = [line.removeprefix("-- ") for line in lines if line.startswith("-- ")]
    said = items[0] if items else " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    return f"{type(error).__name__}: {said}"[:_LONGEST_REASON]


# Metadata key for the indices of complex outputs, which ONNX holds as pairs of numbers.
_COMPLEX_OUTPUTS = "complex_outputs"


def write_onnx(
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

    from comparative_benchmark.backends.frameworks import torch_modules

    exported, plan = torch_modules.export_programs(model, inputs, phase)
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
        del model, exported, translated, program, graph
        gc.collect()
    return paths, plan


def with_complex_outputs(outputs: Sequence[Array], metadata: Mapping[str, str]) -> list[Array]:
    """Returns outputs, converting pairs to complex numbers if the model's outputs are complex.

    Args:
      outputs: outputs of a graph that `write_onnx` has written.
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
