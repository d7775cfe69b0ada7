"""Imports a model or a published program for IREE's compiler, and writes reproducers of this input.

The backend does not import it if it starts from a compiled program: a machine that runs such
programs needs only the runtime. TensorFlow, whose XLA bridge makes StableHLO, is used only if a
model's module has imported it. A reproducer is the MLIR input of the compiler, and the weights as
an archive of parameters.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from comparative_benchmark.backends import exported_programs
from comparative_benchmark.backends.api import Array, BackendContext, UnsupportedError
from comparative_benchmark.backends.exported_programs import Command, Exported, ExportTask
from comparative_benchmark.backends.frameworks import torch_export
from comparative_benchmark.iree import profiler, program, runtime
from comparative_benchmark.iree.conventions import ENTRY, type_of
from openxla.benchmark.artifacts import array_files

# An operation of a dialect that IREE does not know; XLA inserts it around loops.
_COPY = re.compile(r"= mhlo\.copy (%[\w#]+) : (tensor<[^>]*>)")
_BOOLEANS = re.compile(r'dense<"0x([0-9A-Fa-f]+)"> : tensor<((?:\d+x)+)i1>')


def hide_gpus() -> None:
    """Keeps TensorFlow, which only exports here, on the CPU."""
    if tf := sys.modules.get("tensorflow"):
        tf.config.set_visible_devices([], "GPU")


def from_tensorflow(
    model: Any, inputs: Sequence[Array], context: BackendContext
) -> program.ImportedProgram:
    """Returns the program of `model.forward`; phases `trace` and `lower`."""
    import tensorflow as tf

    from comparative_benchmark.backends.frameworks import tensorflow_models

    specs = [tf.TensorSpec(value.shape, value.dtype) for value in inputs]

    with context.phase("trace"):
        function = tensorflow_models.function_of(model.forward, jit_compile=True)
        concrete = function.get_concrete_function(*specs)
    with context.phase("lower"):
        text = function.experimental_get_compiler_ir(*specs)(stage="stablehlo")
        held = tensorflow_models.captured(concrete)
        # Captured values come after the inputs.
        return program.from_stablehlo(
            as_iree_reads(text), list(held), list(held.values()), first=len(inputs)
        )


def as_iree_reads(text: str) -> str:
    """Converts StableHLO of TensorFlow 2.21 to the form that IREE 3.13 reads.

    TensorFlow packs boolean constants as bits, IREE reads bytes; a copy becomes a reshape to the
    same shape.
    """
    text = _COPY.sub(r"= stablehlo.reshape \1 : (\2) -> \2", text)
    return _BOOLEANS.sub(_with_bytes, text)


def _with_bytes(constant: "re.Match[str]") -> str:
    digits, shape = constant.groups()
    count = np.prod([int(size) for size in shape.split("x")[:-1]], dtype=np.int64)
    packed = np.frombuffer(bytes.fromhex(digits), np.uint8)
    bits = np.unpackbits(packed, count=int(count), bitorder="little")
    return f'dense<"0x{bits.tobytes().hex()}"> : tensor<{shape}i1>'


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
    places = exported_programs.unpack(exported["xla_weights"], target)
    weights_at = [index for index, source in enumerate(places) if source is None]
    first = weights_at[0] if weights_at else 0
    if weights_at != list(range(first, first + len(weights_at))):
        raise UnsupportedError(
            "the weights of the published program are not consecutive arguments: omit "
            "--exported-programs to export it here"
        )
    weights = array_files.load_all(target, exported_programs.STEM)
    names = [f"weight_{index}" for index in range(len(weights))]
    text = path.read_text(encoding="utf-8")
    return program.from_stablehlo(text, names, weights, first=first), None


def import_model(
    model: Any, inputs: Sequence[Array], context: BackendContext
) -> program.ImportedProgram:
    """Returns the program of a model or an ONNX file; phases `trace` and `lower`."""
    if hasattr(model, "write_onnx"):
        return _from_onnx(model, inputs, context)
    if not torch_export.holds_modules(model):
        # Libraries of JAX and TensorFlow may have imported the other.
        is_pure = hasattr(model, "apply") and hasattr(model, "params")
        if "tensorflow" in sys.modules and not is_pure:
            return from_tensorflow(model, inputs, context)
        if "jax" in sys.modules:
            return _from_jax(model, inputs, context)
    return _from_torch(model, inputs, context)


def _from_onnx(
    model: Any, inputs: Sequence[Array], context: BackendContext
) -> program.ImportedProgram:
    from comparative_benchmark.iree import onnx_import

    with context.phase("load"):
        path, *_ = exported_programs.write_onnx(model, context.work_dir, inputs)
    with context.phase("lower"):
        return onnx_import.from_onnx(path)


def _from_jax(
    model: Any, inputs: Sequence[Array], context: BackendContext
) -> program.ImportedProgram:
    import jax

    from comparative_benchmark.backends.frameworks import jax_models

    apply, params = jax_models.split(model)
    leaves = jax.tree_util.tree_leaves_with_path(params)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    with context.phase("trace"):
        # Keep unused arguments, so that the leading ones are the weights, one by one.
        traced = jax.jit(apply, keep_unused=True).trace(params, *inputs)
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


_NOTE = (
    "The compiler targets the CPU that it runs on (`host`), so another CPU gets a different "
    "program. To compile the measured program, replace `host` with the name of the measured CPU: "
    "--iree-llvmcpu-target-cpu=NAME."
)


def export_reproducer(task: ExportTask) -> Exported:
    """Writes `program.mlirbc` and `weights.irpa`; the flags are the same as in a measurement."""
    imported = import_model(task.model(), task.inputs, task.context)
    (task.directory / "program.mlirbc").write_bytes(imported.mlir)
    runtime.write_parameters(imported.parameters, task.directory / "weights.irpa")
    flags = program.compile_flags(data_tiling=task.context.compiler == "llvm-cpu-data-tiling")
    return Exported(
        settings={
            "flags": flags,
            "input_type": imported.input_type,
            "threads": task.context.threads,
        },
        packages=("iree-base-compiler", "iree-base-runtime", "numpy", "ml_dtypes"),
        files={
            "program.mlirbc": "the program to compile: MLIR bytecode, dialect "
            f"{imported.input_type}; `iree-ir-tool copy program.mlirbc -o program.mlir` converts "
            "it to text",
            "weights.irpa": "the program's weights: parameters in the scope `model`",
        },
        commands=_commands(task, imported.input_type, flags),
        notes=(_NOTE,),
    )


def _commands(task: ExportTask, input_type: str, flags: Sequence[str]) -> tuple[Command, ...]:
    cpus = runtime.pinned_cpus(task.context.threads)
    run = (
        *("--module=model.vmfb", "--parameters=model=weights.irpa", *profiler.device_flags(cpus)),
        f"--function={ENTRY}",
        *(_input_flag(task, index, value) for index, value in enumerate(task.inputs)),
    )
    return (
        Command(
            comment="Compile it.",
            arguments=(
                *("iree-compile", "program.mlirbc", f"--iree-input-type={input_type}"),
                *("--iree-vm-bytecode-module-strip-source-map", *flags, "-o", "model.vmfb"),
            ),
        ),
        Command(comment="Run it once and print the outputs.", arguments=("iree-run-module", *run)),
        Command(
            comment="Time it.",
            arguments=("iree-benchmark-module", *run, "--benchmark_repetitions=5"),
        ),
    )


def _input_flag(task: ExportTask, index: int, value: Array) -> str:
    """Returns the flag for an input's file, which holds raw bytes if .npy lacks its type."""
    if value.dtype not in (ml_dtypes.bfloat16, np.bool_):
        return f"--input=@inputs/input_{index}.npy"
    path = task.directory / "inputs" / f"input_{index}.bin"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(np.ascontiguousarray(value).tobytes())
    return f"--input={type_of(value)}=@inputs/{path.name}"
