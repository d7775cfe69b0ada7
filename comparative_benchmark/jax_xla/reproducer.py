"""JAX: an artifact of `jax.export`, whose leading arguments are the weights."""

from typing import Any

import jax
import numpy as np
from jax import export as jax_export

from comparative_benchmark.backends.frameworks.jax_models import split
from comparative_benchmark.backends.reproducing import Exported, ExportTask
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.models.shared_model import as_tuple

_NOTE = (
    "The measurement ran `jax.jit` of the model's function. The exported program is the result of "
    "JAX's lowering: it does not include JAX's tracing, and XLA sees it as a call."
)


def export(task: ExportTask) -> Exported:
    """Writes `program.jax_export`, the StableHLO inside it, and the weights."""
    apply, params = split(task.model())
    leaves, structure = jax.tree.flatten(params)

    def flat(*arguments: Any) -> tuple[Any, ...]:
        weights = jax.tree.unflatten(structure, arguments[: len(leaves)])
        return as_tuple(apply(weights, *arguments[len(leaves) :]))

    types = [_type(value) for value in (*leaves, *task.inputs)]
    exported = jax_export.export(jax.jit(flat), platforms=("cpu",))(*types)
    (task.directory / "program.jax_export").write_bytes(exported.serialize())
    (task.directory / "program.mlirbc").write_bytes(exported.mlir_module_serialized)
    files = {
        "program.jax_export": "the program to compile, in the format of `jax.export.deserialize`",
        "program.mlirbc": "the same program as a portable StableHLO artifact, for tools without "
        "JAX (`stablehlo-translate --deserialize program.mlirbc`); unused weights are not "
        "among its arguments",
    }
    if leaves:
        array_files.save_all(
            task.directory / "weights", "weight", [np.asarray(leaf) for leaf in leaves]
        )
        files["weights"] = "the weights, which are the first arguments"
    return Exported(
        settings={"threads": task.context.threads},
        packages=("jax", "jaxlib", "numpy", "ml_dtypes"),
        files=files,
        notes=(_NOTE,),
    )


def _type(value: Any) -> jax.ShapeDtypeStruct:
    # JAX converts arguments from 64 to 32 bits, unless configured otherwise.
    return jax.ShapeDtypeStruct(np.shape(value), jax.dtypes.canonicalize_dtype(value.dtype))
