"""Exports PyTorch models with `torch.export`.

For workers of backends that run exported programs. If an exporter fails, the trial ends as
unsupported, with the exporter's reason. The functions that need PyTorch import it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from comparative_benchmark.backends.api import PhaseTimer, UnsupportedError

if TYPE_CHECKING:
    import torch

# torch.export's message if a model keeps its loop out of the program.
_HOST_LOOP = "Non-recursive torch.compiler.disable"
_LONGEST_REASON = 400


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
            f"{type(model).__name__} holds no torch module: only PyTorch models are exported here"
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
                f"{type(model).__name__} loops on the host, which an exported program would hold "
                "unrolled: measure the models that it calls"
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
        raise UnsupportedError(f"{tool} cannot do this model: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """Returns the type of an error's root cause, and the most informative line of its message.

    This is the first line, joined with the next if it only names a location, or the first item of
    the summary of OpenVINO's front ends.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    items = [line.removeprefix("-- ") for line in lines if line.startswith("-- ")]
    said = items[0] if items else " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    return f"{type(error).__name__}: {said}"[:_LONGEST_REASON]
