"""Programs and weights for IREE, from PyTorch, JAX and TensorFlow.

The import is that of the backend `iree`: weights are parameters of an archive, and the program
names them by `"model"::"<key>"`. The reader is IREE's compiler and runtime, without a framework.
"""

import platform
from pathlib import Path
from typing import Any

from iree.compiler import ir, passmanager

from comparative_benchmark.backends.api import Array
from comparative_benchmark.iree import compilation, cuda, program, runtime
from comparative_benchmark.iree.conventions import ENTRY
from comparative_benchmark.maintenance.artifacts.exporters.job import Job, NotRunError

PARAMETERS = "parameters.irpa"
# Any machine of the last ten years: what is compiled for the host would differ from host to host.
_TARGET_CPUS = {"x86_64": "x86-64-v3"}


def export_irpa(job: Job) -> None:
    """Writes the weights as an archive of parameters."""
    imported = _imported(job)
    runtime.write_parameters(imported.parameters, job.directory / PARAMETERS)
    # What it is read back with.
    _compile(imported, job.scratch / "model.vmfb")


def run_irpa(job: Job) -> list[Array]:
    """Runs the program that was imported together with the weights."""
    return _run(job, job.scratch / "model.vmfb")


def export_mlir(job: Job) -> None:
    """Writes a PyTorch model in torch-mlir's dialect, or lowered from there by some passes.

    One of them drops the paths of this machine.
    """
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(_imported(job).mlir)
        passes = passmanager.PassManager.parse(f"builtin.module({job.options['passes']})")
        passes.run(module.operation)
        with (job.directory / job.options["file"]).open("wb") as file:
            module.operation.write_bytecode(file)


def run_mlir(job: Job) -> list[Array]:
    """Compiles and runs it."""
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
    """Runs it with the published weights."""
    return _run(job, job.find(job.options["file"]))


def export_vmfb_cuda(job: Job) -> None:
    """Compiles a program for NVIDIA GPUs from A100 on, whether there is one here or not."""
    program.compile_program(
        _imported(job),
        job.directory / job.options["file"],
        device="cuda",
        data_tiling=False,
        extra_flags=cuda.compile_flags(cuda.COMMON_TARGET),
    )


def run_vmfb_cuda(job: Job) -> list[Array]:
    """Runs it with the published weights, where there is a GPU.

    Raises:
      NotRunError: there is none; the program was read, and has its entry and PTX for its target.
      ValueError: it is not such a program.
    """
    vmfb = job.find(job.options["file"])
    content = vmfb.read_bytes()
    if ENTRY not in (names := runtime.function_names(content)):
        raise ValueError(f"the program has no function {ENTRY!r}, only {names}")
    ptx = cuda.ptx_of(content)
    if ptx is None or ptx.target != cuda.COMMON_TARGET:
        raise ValueError(f"the program has no PTX for {cuda.COMMON_TARGET}: {ptx}")
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
    # As IREE does by default. Tiled data would be faster, and not every model compiles with it.
    program.compile_program(imported, target, data_tiling=False, target_cpu=cpu)


def _run(job: Job, vmfb: Path, *, device: str = "local") -> list[Array]:
    loaded = runtime.LoadedProgram(vmfb, job.find(PARAMETERS), threads=job.threads, device=device)
    outputs: Any = loaded.invoke(*(loaded.put(value) for value in job.arrays()))
    return [loaded.fetch(output) for output in outputs]
