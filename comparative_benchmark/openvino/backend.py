"""OpenVINO: convert from the framework, compile, then run without the framework."""

import os
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import (
    BackendContext,
    BackendFacts,
    OutputRule,
    UnsupportedError,
)
from comparative_benchmark.backends.exported_programs import joint_digest
from comparative_benchmark.backends.host_settings import HostSettings
from comparative_benchmark.backends.recipes import chosen_among
from comparative_benchmark.backends.resident_programs import SYNCHRONOUS, ResidentBackend
from comparative_benchmark.openvino import (
    CACHE_DIR_VARIABLE,
    DEFAULT_PRECISION,
    WIDENED,
    front_ends,
    program,
    requests,
)
from comparative_benchmark.openvino.program import VERSION, ov
from comparative_benchmark.openvino.requests import CompiledProgram


class OpenVino(ResidentBackend):
    """Converts a model, compiles it for the CPU, and runs it on resident buffers."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        if {WIDENED, DEFAULT_PRECISION} <= set(context.options):
            raise UnsupportedError(
                f"{WIDENED} requests float32, {DEFAULT_PRECISION} OpenVINO's preferred precision: "
                "choose one"
            )
        self._recipe = chosen_among(context.options)
        self._applied: dict[str, Any] | None = None
        self._compiled: list[Any] = []
        self._properties: dict[str, Any] = {}
        self._element_type = ""
        self._digest: str | None = None

    def compile(self) -> None:
        """Traces (`trace`), converts (`lower`), and compiles (`compile`).

        Raises:
          UnsupportedError: the model cannot be converted, or OpenVINO would compute it in another
            type than its own.
        """
        self._paths, self._element_type, plan = front_ends.write(
            self._take_model(), self._arrays, self.context.work_dir, self.context.phase
        )
        core = ov.Core()
        self._properties = program.configuration(
            threads=self.context.threads,
            precision=program.chosen_precision(self.context.options, self._element_type),
            cache_dir=os.environ.get(CACHE_DIR_VARIABLE),
        )
        if self._recipe is not None:
            self._paths, self._applied = program.apply_recipe(
                self._paths, self._recipe, self.context.phase
            )
            self._properties |= self._applied["properties"]
        with self.context.phase("load"):
            read = [core.read_model(path) for path in self._paths]
        with self.context.phase("compile"):
            self._compiled = [
                core.compile_model(model, program.DEVICE, self._properties) for model in read
            ]
        self._check_precision()
        self._bind([CompiledProgram(compiled) for compiled in self._compiled], plan)

    def facts(self) -> BackendFacts:
        """Returns the plug-in's facts: precision, layers, cache."""
        compiled_from = list(zip(self._compiled, self._paths, strict=True))
        if self._digest is None:
            self._digest = joint_digest([program.fingerprint(*pair) for pair in compiled_from])
        cached = [bool(item.get_property("LOADED_FROM_CACHE")) for item in self._compiled]
        has_cache = "CACHE_DIR" in self._properties
        first = self._compiled[0]
        applied = {} if self._applied is None else {"recipe": self._applied}
        return BackendFacts(
            weights="frozen",
            device_name=ov.Core().get_property(program.DEVICE, "FULL_DEVICE_NAME"),
            artifact_sha256=self._digest,
            artifact_size_bytes=sum(path.stat().st_size for path in self._paths),
            cache_hits=cached.count(True) if has_cache else None,
            cache_misses=cached.count(False) if has_cache else None,
            notes={
                **applied,
                "weights": "constants that the plug-in folds and packs",
                "parameters_size_bytes": sum(
                    program.weights_of(path).stat().st_size for path in self._paths
                ),
                "dispatch": SYNCHRONOUS,
                "graphs": len(self._paths),
                "model_precision": self._element_type,
                "inference_precision": program.precision_of(first),
                "num_streams": first.get_property("NUM_STREAMS"),
                "layers": {
                    path.stem: program.executed(compiled) for compiled, path in compiled_from
                },
            },
        )

    def output_rule(self) -> OutputRule:
        """Returns both modes: a request can write to the same tensors or to new ones."""
        return OutputRule(modes=("bound", "allocated"))

    def host_settings(self) -> HostSettings:
        """Returns the properties of the compiled model, as it reports them."""
        first = self._compiled[0]
        return HostSettings(
            threads=int(first.get_property("INFERENCE_NUM_THREADS")),
            inter_op_threads=int(first.get_property("NUM_STREAMS")),
            threads_told_by="CompiledModel.get_property",
        )

    def release(self) -> None:
        """Releases the compiled models."""
        super().release()
        self._compiled = []

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        """Writes times of the layers, from OpenVINO's performance counters.

        Raises:
          UnsupportedError: the model generates.
        """
        path = self._only_path("OpenVINO")
        return requests.profile_model(path, self._properties, self._arrays, directory, iterations)

    def _check_precision(self) -> None:
        """Raises UnsupportedError if the model is computed in another type without an option."""
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
                    f"openvino:{self.context.compiler}+{WIDENED}, which allows this"
                )
