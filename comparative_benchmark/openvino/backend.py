"""OpenVINO: convert from the framework, compile, then run without the framework."""

import gc
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import (
    Array,
    Backend,
    BackendContext,
    BackendFacts,
    GenerationParts,
    UnsupportedError,
)
from comparative_benchmark.backends.resident_programs import (
    GenerationLoop,
    GenerationPlan,
    LoopParts,
    SingleProgram,
)
from comparative_benchmark.openvino import (
    CACHE_DIR_VARIABLE,
    DEFAULT_PRECISION,
    WIDENED,
    front_ends,
    profiler,
    program,
)
from comparative_benchmark.openvino.requests import CompiledProgram
from comparative_benchmark.openvino.toolkit import VERSION, ov


class OpenVino(Backend):
    """Converts a model, compiles it for the CPU, and runs it on buffers that stay.

    A PyTorch model that generates is two programs, prefill and decode; any other is one.
    """

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        if context.device.accelerator_type != "cpu":
            raise UnsupportedError(
                f"OpenVINO {VERSION} has no plug-in for {context.device.name}, only for "
                f"{', '.join(ov.Core().available_devices)}: choose -device host-cpu"
            )
        if {WIDENED, DEFAULT_PRECISION} <= set(context.options):
            raise UnsupportedError(
                f"{WIDENED} asks for float32, {DEFAULT_PRECISION} for what OpenVINO likes best: "
                "choose one"
            )
        self._model: Any = None
        self._arrays: tuple[Array, ...] = ()
        self._paths: list[Path] = []
        self._compiled: list[Any] = []
        self._bound: SingleProgram | GenerationLoop | None = None
        self._run: Any = None
        self._properties: dict[str, Any] = {}
        self._element_type = ""
        self._digest: str | None = None

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        """Keeps model and inputs for `compile`: they are set when there is a program."""
        self._model, self._arrays = model, tuple(inputs)

    def compile(self) -> None:
        """Traces (`trace`), converts (`lower`), and compiles (`compile`).

        Raises:
          UnsupportedError: the model can not be converted, or OpenVINO would compute it in another
            type than its own.
        """
        plan = self._convert()
        core = ov.Core()
        self._properties = program.configuration(
            threads=self.context.threads,
            precision=self._precision(),
            cache_dir=os.environ.get(CACHE_DIR_VARIABLE),
        )
        with self.context.phase("load"):
            read = [core.read_model(path) for path in self._paths]
        with self.context.phase("compile"):
            self._compiled = [
                core.compile_model(model, program.DEVICE, self._properties) for model in read
            ]
        self._check_precision()
        programs = [CompiledProgram(compiled) for compiled in self._compiled]
        with self.context.phase("h2d"):
            if plan is None:
                self._bound = SingleProgram(programs[0], self._arrays)
            else:
                self._bound = GenerationLoop(programs[0], programs[1], plan, self._arrays)
        self._run = self._bound.run

    def dispatch(self) -> Any:
        """Infers; the call returns when the outputs are complete."""
        return self._run()

    def synchronize(self, outputs: Any) -> None:
        """The call was synchronous."""

    def fetch(self, outputs: Any) -> list[Any]:
        """Copies the outputs to arrays."""
        if self._bound is None:
            raise RuntimeError("compile must come first")
        return list(self._bound.fetch())

    def facts(self) -> BackendFacts:
        """What the plug-in tells: precision, layers, cache."""
        self._digest = self._digest or self._fingerprint()
        cached = [bool(item.get_property("LOADED_FROM_CACHE")) for item in self._compiled]
        has_cache = "CACHE_DIR" in self._properties
        first = self._compiled[0]
        return BackendFacts(
            weights="frozen",
            device_name=ov.Core().get_property(program.DEVICE, "FULL_DEVICE_NAME"),
            artifact_sha256=self._digest,
            artifact_size_bytes=sum(path.stat().st_size for path in self._paths),
            cache_hits=cached.count(True) if has_cache else None,
            cache_misses=cached.count(False) if has_cache else None,
            notes={
                "weights": "constants, which the plug-in folds and packs",
                "parameters_size_bytes": sum(
                    program.weights_of(path).stat().st_size for path in self._paths
                ),
                "dispatch": "synchronous: the host waits inside the call",
                "graphs": len(self._paths),
                "model_precision": self._element_type,
                "inference_precision": program.precision_of(first),
                "inference_num_threads": first.get_property("INFERENCE_NUM_THREADS"),
                "num_streams": first.get_property("NUM_STREAMS"),
                "layers": {
                    path.stem: program.executed(compiled)
                    for path, compiled in zip(self._paths, self._compiled, strict=True)
                },
            },
        )

    def run_with(self, inputs: Sequence[Array]) -> list[Any] | None:
        """Generates along given tokens; None for a model that is not two programs."""
        if not isinstance(self._bound, GenerationLoop):
            return None
        return list(self._bound.run_with(inputs))

    def generation_parts(self) -> GenerationParts:
        """Returns the two programs of a model that generates.

        Raises:
          UnsupportedError: it is one program.
        """
        if not isinstance(self._bound, GenerationLoop):
            return super().generation_parts()
        return LoopParts(self._bound)

    def release(self) -> None:
        """Lets go of the compiled models."""
        self._bound = None
        self._run = None
        self._compiled = []

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        """Times of the layers, by OpenVINO's performance counters.

        Raises:
          UnsupportedError: the model generates: its programs run in turns, from one another's
            state.
        """
        if len(self._paths) != 1:
            raise UnsupportedError(
                "a model that generates is two programs here, which OpenVINO profiles apart: "
                "profile a case that scores its input"
            )
        return profiler.profile_model(
            self._paths[0], self._properties, self._arrays, directory, iterations
        )

    def _convert(self) -> GenerationPlan | None:
        """Writes the models to files; returns how to call them, if there are two."""
        model, self._model = self._model, None
        converted, plan = front_ends.convert(model, self._arrays, self.context.phase)
        with self.context.phase("load"):
            self._element_type = program.element_type(converted[0])
            names = ("model",) if plan is None else ("prefill", "decode")
            self._paths = [Path(self.context.work_dir) / f"{name}.xml" for name in names]
            for item, path in zip(converted, self._paths, strict=True):
                program.save(item, path)
            # The framework's copy of the weights would count towards the program's memory.
            del model, converted
            gc.collect()
        return plan

    def _precision(self) -> str | None:
        """Returns the type to ask for; OpenVINO's own default is bfloat16 where the CPU has it."""
        if DEFAULT_PRECISION in self.context.options:
            return None
        return "f32" if WIDENED in self.context.options else self._element_type

    def _check_precision(self) -> None:
        """Raises where the model is not computed in its own type and nobody asked for that."""
        if self.context.options:
            return
        wanted = self._element_type
        for compiled in self._compiled:
            got = program.precision_of(compiled)
            if got == wanted and not program.runs_products_in(program.executed(compiled), wanted):
                got = "f32"
            if got != wanted:
                raise UnsupportedError(
                    f"OpenVINO {VERSION} has no {wanted} kernels for this CPU and would "
                    f"compute this model in {got}: measure the fp32 model, or choose "
                    f"openvino:{self.context.compiler}+{WIDENED}, which says so"
                )

    def _fingerprint(self) -> str:
        digests = [
            program.fingerprint(compiled, path)
            for compiled, path in zip(self._compiled, self._paths, strict=True)
        ]
        joint = hashlib.sha256("".join(digests).encode()).hexdigest()
        return digests[0] if len(digests) == 1 else joint
