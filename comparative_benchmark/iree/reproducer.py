"""IREE: the MLIR input of the compiler, and the weights as an archive of parameters."""

import os
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.reproducing import Command, Exported, ExportTask
from comparative_benchmark.iree import profiler, program, runtime
from comparative_benchmark.iree.compilation import import_model
from comparative_benchmark.iree.conventions import ENTRY, type_of

_NOTE = (
    "The compiler targets the CPU that it runs on (`host`), so another CPU gets a different "
    "program. To compile the measured program, replace `host` with the name of the measured CPU: "
    "--iree-llvmcpu-target-cpu=NAME."
)


def export(task: ExportTask) -> Exported:
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
            "weights.irpa": "its weights, which it reads as parameters in the scope `model`",
        },
        commands=_commands(task, imported.input_type, flags),
        notes=(_NOTE,),
    )


def _commands(task: ExportTask, input_type: str, flags: Sequence[str]) -> tuple[Command, ...]:
    cpus = sorted(os.sched_getaffinity(0))[: task.context.threads]
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
        Command(
            comment="Run it once and print the outputs.",
            arguments=("iree-run-module", *run),
        ),
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
