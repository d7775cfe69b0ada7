"""Compiles a model or a published program; the part that needs IREE's compiler.

The backend does not import it if it starts from a compiled program: a machine that runs such
programs needs only the runtime.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comparative_benchmark.backends import published_programs
from comparative_benchmark.backends.api import Array, BackendContext, UnsupportedError
from comparative_benchmark.backends.frameworks import torch_export
from comparative_benchmark.iree import program, tensorflow_export
from openxla.benchmark.artifacts import array_files


def imported(
    exported: Mapping[str, tuple[Path, ...]], scratch: Path
) -> tuple[program.ImportedProgram, Path | None]:
    """Returns a program, and the archive with its weights if there is one.

    Args:
      exported: files by type of artifact, see `BACKEND.starts_from`.
      scratch: directory to unpack weights in.

    Raises:
      UnsupportedError: the weights are not successive arguments.
      StoreError: the archive of the weights is damaged.
    """
    if "torch_mlir" in exported:
        (path,), (archive,) = exported["torch_mlir"], exported["irpa"]
        # The program names its parameters itself.
        content = path.read_bytes()
        return program.ImportedProgram(mlir=content, input_type="torch", parameters={}), archive
    (path,) = exported["stablehlo_mlir"]
    target = scratch / "weights"
    places = published_programs.unpack(exported["xla_weights"], target)
    weights_at = [index for index, source in enumerate(places) if source is None]
    first = weights_at[0] if weights_at else 0
    if weights_at != list(range(first, first + len(weights_at))):
        raise UnsupportedError(
            "the weights of the published program are not consecutive arguments: omit "
            "--exported-programs to export it here"
        )
    weights = array_files.load_all(target, published_programs.STEM)
    names = [f"weight_{index}" for index in range(len(weights))]
    text = path.read_text(encoding="utf-8")
    return program.from_stablehlo(text, names, weights, first=first), None


def import_model(
    model: Any, inputs: Sequence[Array], context: BackendContext
) -> program.ImportedProgram:
    """Returns the program of a model or an ONNX file; phases `trace` and `lower`."""
    if hasattr(model, "write_onnx"):
        return _from_onnx(model, inputs, context)
    if hasattr(model, "apply") and hasattr(model, "params"):
        return _from_jax(model, inputs, context)
    if tensorflow_export.is_model(model):
        return tensorflow_export.export(model, inputs, context)
    return _from_torch(model, inputs, context)


def _from_onnx(
    model: Any, inputs: Sequence[Array], context: BackendContext
) -> program.ImportedProgram:
    from comparative_benchmark.iree import onnx_import

    with context.phase("load"):
        path, *_ = model.write_onnx(context.work_dir, inputs)
    with context.phase("lower"):
        return onnx_import.from_onnx(path)


def _from_jax(
    model: Any, inputs: Sequence[Array], context: BackendContext
) -> program.ImportedProgram:
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(model.params)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    with context.phase("trace"):
        # Keep unused arguments, so that the leading ones are the weights, one by one.
        traced = jax.jit(model.apply, keep_unused=True).trace(model.params, *inputs)
    with context.phase("lower"):
        text = traced.lower().as_text()
        weights = [np.asarray(leaf) for _, leaf in leaves]
        return program.from_stablehlo(text, names, weights)


def _from_torch(
    model: Any, inputs: Sequence[Array], context: BackendContext
) -> program.ImportedProgram:
    import torch

    torch.set_num_threads(context.threads)
    exported = torch_export.export(model, inputs, context.phase)
    with context.phase("lower"):
        return program.from_torch(exported)
