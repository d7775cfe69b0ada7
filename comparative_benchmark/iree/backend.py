"""IREE: export from the framework, compile, then run without the framework."""

import gc
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from iree.compiler.tools import CompilerToolError

from comparative_benchmark import torch_export
from comparative_benchmark.backend_api import (
    Array,
    Backend,
    BackendContext,
    BackendFacts,
    UnsupportedError,
)
from comparative_benchmark.iree import profiler, program, published, runtime, tensorflow_export

_TARGETS = {"llvm-cpu": "local", "llvm-cpu-data-tiling": "local", "cuda": "cuda"}
# The newest architecture that IREE 3.13 compiles for; the driver compiles its PTX for newer GPUs.
_CUDA_FLAGS = ("--iree-cuda-target=sm_89",)


class Iree(Backend):
    """Exports a model with its weights outside, compiles it, and runs the program."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._target = _TARGETS[context.compiler]
        wanted = "cuda" if context.device.accelerator_type == "gpu" else "local"
        if self._target != wanted:
            raise UnsupportedError(
                f"the compiler {context.compiler} makes no program for {context.device.name}"
            )
        tensorflow_export.hide_gpus()  # before TensorFlow puts a weight on one
        self._model: Any = None
        self._arrays: tuple[Array, ...] = ()
        self._program: runtime.LoadedProgram | None = None
        self._inputs: list[runtime.DeviceArray] = []
        self._has_weights = False
        self._not_measurable: tuple[str, ...] = ()
        self._vmfb = Path(context.work_dir) / "model.vmfb"
        self._archive = Path(context.work_dir) / "model.irpa"

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        """Keeps model and inputs for `compile`: IREE has no device before it has a program."""
        self._model, self._arrays = model, tuple(inputs)

    def compile(self) -> None:
        """Exports (`trace`, `lower`), compiles, and loads program, weights and inputs."""
        model, self._model = self._model, None
        archive: Path | None = None
        if self.context.exported:
            with self.context.phase("load"):
                imported, archive = published.imported(
                    self.context.exported, Path(self.context.work_dir)
                )
        else:
            imported = import_model(model, self._arrays, self.context)
        if imported.input_type == "torch" and not self.context.exported:
            # torch.export, decompositions and the importer go over the program in turns.
            self._not_measurable = ("trace",)
        self._has_weights = bool(imported.parameters) or archive is not None
        with self.context.phase("compile"):
            _compile(imported, self._vmfb, self.context.compiler, self._target)
        with self.context.phase("load"):
            if archive is None:
                runtime.write_parameters(imported.parameters, self._archive)
            else:
                self._archive = archive
            # The framework's copy of the weights would count towards the program's memory.
            del model, imported
            gc.collect()
            self._program = self._load_program()
        with self.context.phase("h2d"):
            self._inputs = [self._program.put(value) for value in self._arrays]
        self._invoke = self._program.invoke

    def dispatch(self) -> Any:
        """Calls the program, which returns when its outputs are complete."""
        return self._invoke(*self._inputs)

    def synchronize(self, outputs: Any) -> None:
        """The call was synchronous."""

    def fetch(self, outputs: Any) -> list[Any]:
        """Copies the outputs to the host."""
        if self._program is None:
            raise RuntimeError("compile must come first")
        return [self._program.fetch(buffer) for buffer in outputs]

    def facts(self) -> BackendFacts:
        """Size and digest of the compiled program; its weights are in an archive beside it."""
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
        facts.notes["dispatch"] = "synchronous: the host waits inside the call"
        return facts

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        """What each dispatch took on the host, by IREE's tools, which run the program themselves.

        Raises:
          UnsupportedError: for CUDA, and where the tools are missing.
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
            cpus=sorted(os.sched_getaffinity(0))[: self.context.threads],
            work_dir=self.context.work_dir,
        )

    def _load_program(self) -> runtime.LoadedProgram:
        try:
            return runtime.LoadedProgram(
                self._vmfb, self._archive, threads=self.context.threads, device=self._target
            )
        except RuntimeError as error:
            if self._target == "local":
                raise
            raise UnsupportedError(
                f"IREE finds no {self._target} device ({str(error).splitlines()[0]}): check "
                "`nvidia-smi` and `iree-run-module --list_devices`"
            ) from error


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


def _compile(imported: program.ImportedProgram, output: Path, compiler: str, target: str) -> None:
    try:
        program.compile_program(
            imported,
            output,
            data_tiling=compiler == "llvm-cpu-data-tiling",
            device=target,
            extra_flags=_CUDA_FLAGS if target == "cuda" else (),
        )
    except CompilerToolError as error:
        # Hundreds of lines follow; the first error says most, the log file holds the rest.
        print(error, flush=True)
        # LLVM writes its own in capitals, and dies of it.
        found = re.search(r"(?:error|ERROR): *(\S.*)", str(error))
        reason = found[1].strip() if found else "no message"
        raise RuntimeError(f"iree-compile failed: {reason}") from None
