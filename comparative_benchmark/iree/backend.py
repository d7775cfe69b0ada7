"""IREE: export from the framework, compile, then run without the framework.

A program that was compiled on a machine with IREE's compiler is only run: that requires the
runtime, but neither the compiler nor a framework.
"""

import gc
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import (
    ALLOCATED_ONLY,
    Array,
    Backend,
    BackendContext,
    BackendFacts,
    OutputRule,
    UnsupportedError,
)
from comparative_benchmark.backends.host_settings import HostSettings, pool_size
from comparative_benchmark.backends.resident_programs import SYNCHRONOUS
from comparative_benchmark.iree import conventions, profiler, runtime

_TARGETS = {"llvm-cpu": "local", "llvm-cpu-data-tiling": "local", "cuda": "cuda"}
# The type of published artifacts that needs no compiler.
_COMPILED = "vmfb_cuda"
_WORKERS = "iree-worker"
_DRIVER_COMPILES = (
    "the driver compiles the program's PTX for this GPU in the `load` phase and caches the result"
)


class Iree(Backend):
    """Exports a model with its weights outside, compiles it, and runs the program."""

    _program: runtime.LoadedProgram

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._target = _TARGETS[context.compiler]
        self._is_compiled = _COMPILED in context.exported
        if not self._is_compiled:
            with context.phase("import"):
                from comparative_benchmark.iree import compilation
            compilation.hide_gpus()  # before TensorFlow puts a weight on one
        self._model: Any = None
        self._arrays: tuple[Array, ...] = ()
        self._arguments: Any = None
        self._has_weights = False
        self._not_measurable: tuple[str, ...] = ()
        self._flags: tuple[str, ...] = ()
        self._vmfb = Path(context.work_dir) / "model.vmfb"
        self._archive = Path(context.work_dir) / "model.irpa"

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        """Finds the GPU; keeps model and inputs for `compile`, as no program takes them yet.

        Raises:
          UnsupportedError: there is no GPU here.
        """
        if self._target != "local":
            with self.context.phase("load"):
                try:
                    runtime.open_device(self._target, threads=self.context.threads)
                except runtime.NoDeviceError as error:
                    raise UnsupportedError(_no_device(self._target, error)) from error
        self._model, self._arrays = model, tuple(inputs)

    def compile(self) -> None:
        """Exports (`trace`, `lower`), compiles, and loads program, weights and inputs."""
        if self._is_compiled:
            (self._vmfb,), (self._archive,) = (
                self.context.exported[kind] for kind in (_COMPILED, "irpa")
            )
            self._has_weights = True
            self._not_measurable = ("compile",)
        else:
            self._compile()
        with self.context.phase("load"):
            # The framework's copy of the weights would count towards the program's memory.
            gc.collect()
            if self._is_compiled:
                _check_gpu(self._vmfb)
            self._program = runtime.LoadedProgram(
                self._vmfb, self._archive, threads=self.context.threads, device=self._target
            )
        with self.context.phase("h2d"):
            self.replace_inputs(self._arrays)
        self._call = self._program.call

    def dispatch(self) -> Any:
        """Calls the program, which returns when its outputs are complete."""
        return self._call(self._arguments)

    def synchronize(self, outputs: Any) -> None:
        """Does nothing: `dispatch` is synchronous."""

    def fetch(self, outputs: Any) -> list[Any]:
        """Copies the outputs to the host."""
        return [self._program.fetch(buffer) for buffer in self._program.results(outputs)]

    def replace_inputs(self, inputs: Sequence[Array]) -> bool:
        """Puts them on the device."""
        self._arrays = tuple(inputs)
        self._arguments = self._program.arguments(*map(self._program.put, inputs))
        return True

    def output_rule(self) -> OutputRule:
        """Outputs are allocated: an exported function returns buffers that it allocates."""
        return OutputRule(modes=("allocated",), reason=ALLOCATED_ONLY)

    def host_settings(self) -> HostSettings | None:
        """Returns the threads of its task system, by name; one thread means the calling thread."""
        if self._target != "local":
            return None
        workers = pool_size(_WORKERS)
        told_by = f"threads named {_WORKERS}" if workers else "the calling thread computes"
        return HostSettings(threads=workers or 1, threads_told_by=told_by)

    def facts(self) -> BackendFacts:
        """Returns size and digest of the compiled program, without the archive of its weights."""
        content = self._vmfb.read_bytes()
        facts = BackendFacts(
            weights="parameters" if self._has_weights else "frozen",
            artifact_sha256=hashlib.sha256(content).hexdigest(),
            artifact_size_bytes=len(content),
        )
        facts.notes["parameters_size_bytes"] = self._archive.stat().st_size
        facts.not_measurable = self._not_measurable
        if self.context.exported:
            facts.notes["starts_from"] = sorted(self.context.exported)
        facts.notes["dispatch"] = SYNCHRONOUS
        facts.notes["tf32"] = None
        if self._target == "cuda":
            self._add_facts_of_gpu(facts, content)
        return facts

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        """Writes the host's time per dispatch, by IREE's tools, which run the program themselves.

        Raises:
          UnsupportedError: for CUDA, and if the tools are missing.
        """
        if self._target != "local":
            raise UnsupportedError(
                f"IREE has no profiler for {self._target} devices: run the command under "
                "`nsys profile --trace=cuda`"
            )
        return profiler.profile_program(
            self._vmfb,
            self._archive,
            self._arrays,
            directory,
            iterations,
            cpus=runtime.pinned_cpus(self.context.threads),
            work_dir=self.context.work_dir,
        )

    def _compile(self) -> None:
        """Compiles the model or a published program; writes the program and its weights."""
        from comparative_benchmark.iree import compilation, program

        model, self._model = self._model, None
        archive: Path | None = None
        if self.context.exported:
            with self.context.phase("load"):
                imported, archive = compilation.imported(
                    self.context.exported, Path(self.context.work_dir)
                )
        else:
            imported = compilation.import_model(model, self._arrays, self.context)
        if imported.input_type == "torch" and not self.context.exported:
            # torch.export, decompositions and the importer alternate, so `trace` cannot be timed.
            self._not_measurable = ("trace",)
        self._has_weights = bool(imported.parameters) or archive is not None
        if self._target == "cuda":
            self._flags = conventions.cuda_flags(
                conventions.cuda_target_for(conventions.compute_capability())
            )
        with self.context.phase("compile"):
            program.compile_program(
                imported,
                self._vmfb,
                device=self._target,
                data_tiling=self.context.compiler == "llvm-cpu-data-tiling",
                extra_flags=self._flags,
            )
        if archive is not None:
            self._archive = archive
            return
        with self.context.phase("load"):
            runtime.write_parameters(imported.parameters, self._archive)

    def _add_facts_of_gpu(self, facts: BackendFacts, program: bytes) -> None:
        facts.device_name = runtime.device_name(self._target)
        facts.device_memory_peak_bytes = self._program.memory_peak_bytes()
        ptx = conventions.ptx_of(program)
        facts.notes["cuda_target"] = ptx.target if ptx else None
        facts.notes["tf32"] = ptx.uses_tf32 if ptx else None
        facts.notes["compile"] = _DRIVER_COMPILES
        if self._flags:
            facts.notes["compiler_flags"] = list(self._flags)


def _no_device(target: str, error: runtime.NoDeviceError) -> str:
    """Returns a message for a machine that lacks a device."""
    reason = str(error).splitlines()[0]
    if target == "cuda" and conventions.compute_capability() is not None:
        return (
            f"IREE loads CUDA's driver as libcuda.so, but this machine has only libcuda.so.1 "
            f"({reason}): symlink it as libcuda.so in a directory on LD_LIBRARY_PATH"
        )
    return (
        f"IREE finds no {target} device ({reason}): check `nvidia-smi` and "
        "`iree-run-module --list_devices`"
    )


def _check_gpu(vmfb: Path) -> None:
    """Raises `UnsupportedError` if a program was compiled for newer GPUs than this one."""
    ptx, here = conventions.ptx_of(vmfb.read_bytes()), conventions.compute_capability()
    if ptx is not None and here is not None and not ptx.runs_on(here):
        raise UnsupportedError(
            f"the program was compiled for {ptx.target}, but this GPU has compute capability "
            f"{here[0]}.{here[1]}: omit --exported-programs to compile it here"
        )
