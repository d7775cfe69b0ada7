"""From a model or a published program to a compiled one; the half that needs IREE's compiler.

The backend imports it only where it does not start from a compiled program: a machine that runs
such programs needs the runtime alone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from comparative_benchmark.backends import torch_export
from comparative_benchmark.backends.api import Array, BackendContext
from comparative_benchmark.iree import program, tensorflow_export


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
        # Unused arguments stay, so that the leading ones are the weights, one by one.
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
