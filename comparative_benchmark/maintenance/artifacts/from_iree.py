"""Programs and weights for IREE, from PyTorch, JAX and TensorFlow.

Models are imported as by the backend `iree`: weights are parameters in an archive, referenced in
the program as `"model"::"<key>"`. Files are read back with IREE's compiler and runtime, without a
framework.
"""

import platform
from pathlib import Path
from typing import Any

from iree.compiler import ir, passmanager

from comparative_benchmark.backends.api import Array
from comparative_benchmark.iree import compilation, conventions, program, runtime
from comparative_benchmark.iree.conventions import ENTRY
from comparative_benchmark.maintenance.artifacts.job import Job, NotRunError

PARAMETERS = "parameters.irpa"
# Runs on any machine of the last ten years; compiling for the host would not be reproducible.
_TARGET_CPUS = {"x86_64": "x86-64-v3"}


def export_irpa(job: Job) -> None:
    """Writes the weights as an archive of parameters."""
    imported = _imported(job)
    runtime.write_parameters(imported.parameters, job.directory / PARAMETERS)
    # For reading the weights back.
    _compile(imported, job.scratch / "model.vmfb")


def run_irpa(job: Job) -> list[Array]:
    """Runs the program that was imported together with the weights."""
    return _run(job, job.scratch / "model.vmfb")


def export_mlir(job: Job) -> None:
    """Writes a PyTorch model in torch-mlir's dialect, or lowered from it by some passes.

    One of the passes removes local paths.
    """
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(_imported(job).mlir)
        passes = passmanager.PassManager.parse(f"builtin.module({job.options['passes']})")
        passes.run(module.operation)
        with (job.directory / job.options["file"]).open("wb") as file:
            module.operation.write_bytecode(file)


def run_mlir(job: Job) -> list[Array]:
    """Compiles and runs the program."""
    imported = program.ImportedProgram(
        mlir=job.find(job.options["file"]).read_bytes(),
        input_type=job.options["input_type"],
        parameters={},
    )
    _compile(imported, job.scratch / "model.vmfb")
    return _run(job, job.scratch / "model.vmfb")


def export_vmfb(job: Job) -> None:
    """Compiles a program for CPUs of this architecture."""
    _compile(_imported(job), job.directory / job.options["file"])


def run_vmfb(job: Job) -> list[Array]:
    """Runs the program with the published weights."""
    return _run(job, job.find(job.options["file"]))


def export_vmfb_cuda(job: Job) -> None:
    """Compiles a program for NVIDIA GPUs from A100 on; needs no GPU."""
    program.compile_program(
        _imported(job),
        job.directory / job.options["file"],
        device="cuda",
        data_tiling=False,
        extra_flags=conventions.cuda_flags(conventions.COMMON_CUDA_TARGET),
    )


def run_vmfb_cuda(job: Job) -> list[Array]:
    """Runs the program with the published weights if there is a GPU.

    Raises:
      NotRunError: there is no GPU; the program has the expected entry and PTX for its target.
      ValueError: the program lacks the entry, or PTX for its target.
    """
    vmfb = job.find(job.options["file"])
    content = vmfb.read_bytes()
    if ENTRY not in (names := runtime.function_names(content)):
        raise ValueError(f"the program has no function {ENTRY!r}, only {names}")
    ptx = conventions.ptx_of(content)
    if ptx is None or ptx.target != conventions.COMMON_CUDA_TARGET:
        raise ValueError(f"expected PTX for {conventions.COMMON_CUDA_TARGET}, got {ptx}")
    try:
        runtime.open_device("cuda")
    except runtime.NoDeviceError as error:
        raise NotRunError(
            f"not run, because no CUDA device was found: the file contains the entry {ENTRY!r} and "
            f"PTX for {ptx.target}, but its outputs are not verified"
        ) from error
    return _run(job, vmfb, device="cuda")


def _imported(job: Job) -> program.ImportedProgram:
    return compilation.import_model(job.model(), job.arrays(), job.context("llvm-cpu"))


def _compile(imported: program.ImportedProgram, target: Path) -> None:
    cpu = _TARGET_CPUS.get(platform.machine(), "generic")
    # IREE's default. Data tiling would be faster, but some models do not compile with it.
    program.compile_program(imported, target, data_tiling=False, target_cpu=cpu)


def _run(job: Job, vmfb: Path, *, device: str = "local") -> list[Array]:
    loaded = runtime.LoadedProgram(vmfb, job.find(PARAMETERS), threads=job.threads, device=device)
    outputs: Any = loaded.invoke(*(loaded.put(value) for value in job.arrays()))
    return [loaded.fetch(output) for output in outputs]
