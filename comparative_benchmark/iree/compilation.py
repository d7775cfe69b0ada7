"""From a model or a published program to a compiled one; the half that needs IREE's compiler.

The backend imports it only where it does not start from a compiled program: a machine that runs
such programs needs the runtime alone.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from iree.compiler.tools import CompilerToolError

from comparative_benchmark.backends import torch_export
from comparative_benchmark.backends.api import Array, BackendContext
from comparative_benchmark.iree import program, tensorflow_export


def import_model(
    model: Any, inputs: Sequence[Array], context: BackendContext
) -> program.ImportedProgram:
    """Returns the program of a model in JAX, TensorFlow or PyTorch; phases `trace` and `lower`."""
    if hasattr(model, "apply") and hasattr(model, "params"):
        return _from_jax(model, inputs, context)
    if tensorflow_export.is_model(model):
        return tensorflow_export.export(model, inputs, context)
    return _from_torch(model, inputs, context)


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


def compile_imported(
    imported: program.ImportedProgram,
    output: Path,
    *,
    device: str,
    data_tiling: bool,
    extra_flags: Sequence[str],
) -> None:
    """Compiles as `program.compile_program` does, and shortens what the compiler complains of.

    Raises:
      RuntimeError: the compiler failed; the message is its first error, the log has all of them.
    """
    try:
        program.compile_program(
            imported, output, data_tiling=data_tiling, device=device, extra_flags=extra_flags
        )
    except CompilerToolError as error:
        # Hundreds of lines follow; the first error says most, the log file holds the rest.
        print(error, flush=True)
        # LLVM writes its own in capitals, and dies of it.
        found = re.search(r"(?:error|ERROR): *(\S.*)", str(error))
        reason = found[1].strip() if found else "no message"
        raise RuntimeError(f"iree-compile failed: {reason}") from None
