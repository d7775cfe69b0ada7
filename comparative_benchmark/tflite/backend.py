"""TFLite: convert in a child process, then run the file in the LiteRT interpreter."""

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from comparative_benchmark.backends.api import (
    Array,
    Backend,
    BackendContext,
    BackendFacts,
    ModelDefinition,
    OutputRule,
    UnsupportedError,
)
from comparative_benchmark.backends.host_settings import HostSettings
from comparative_benchmark.backends.operator_profile import Operator, OperatorProfile, write
from comparative_benchmark.backends.resident_programs import SYNCHRONOUS, poison
from comparative_benchmark.tflite import BACKEND
from comparative_benchmark.tflite.export import described, export_file
from openxla.benchmark.artifacts.workload_store import WorkloadCost
from openxla.benchmark.models.tflite.program import Program
from openxla.benchmark.models.tflite.tflite_model import TfLiteModel


def compute(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs in float64, and op by op in the unquantised model's own type."""
    source, module = _source(model)
    outputs: tuple[list[Any], list[Any]] = module.compute(source, inputs)
    return outputs


def cost(model: Any, inputs: Sequence[Array]) -> WorkloadCost:
    """Returns the work of the unquantised model."""
    source, module = _source(model)
    if not hasattr(module, "cost"):
        return WorkloadCost.unknown(f"{module.__name__} does not define a cost")
    found: WorkloadCost = module.cost(source, inputs)
    return found


def _source(model: Any) -> tuple[Any, Any]:
    """Returns the unquantised model, and the module that computes the truth of its framework."""
    source = model.source() if isinstance(model, TfLiteModel) else model
    framework = "tf_xla" if hasattr(source, "layer") else "jax_xla"
    return source, importlib.import_module(f"comparative_benchmark.{framework}.reference")


class TfLite(Backend):
    """Runs a file made by another process, so that conversion has no side effects here."""

    takes_definition: ClassVar[bool] = True
    _definition: ModelDefinition
    _arrays: tuple[Array, ...]
    _file: Mapping[str, Any]
    _program: Program

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._uses_xnnpack = "no-xnnpack" not in context.options

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        """Keeps definition and inputs for `compile`: there is no program to hold them yet."""
        self._definition, self._arrays = model, tuple(inputs)

    def compile(self) -> None:
        """Converts (`trace`, `lower`), then loads the file and lets XNNPACK prepare it (`compile`).

        Cases that are TFLite files and published files need no conversion; if the suite must first
        make the file of a case, it does so in the phase `prepare`.
        """
        self._file = self._find_file()
        with self.context.phase("compile"):
            self._program = self._load_program(Path(self._file["path"]))
        with self.context.phase("h2d"):
            self._program.set_inputs(self._arrays)
        self._invoke = self._program.invoke

    def _find_file(self) -> Mapping[str, Any]:
        """Returns the published file, or the one that another process makes or finds."""
        context = self.context
        if context.exported:
            ((path,),) = context.exported.values()
            precision = BACKEND.compiler(context.compiler).precision or "fp32"
            return {**described(path, precision), "origin": "published", "versions": {}}
        return export_file(
            self._definition,
            self._arrays,
            context.compiler,
            context.work_dir,
            context.phase,
            xnnpack=self._uses_xnnpack,
        )

    def _load_program(self, path: Path) -> Program:
        try:
            return Program(path, threads=self.context.threads, xnnpack=self._uses_xnnpack)
        except RuntimeError as error:
            hint = f"; choose {self.context.compiler}+no-xnnpack" if self._uses_xnnpack else ""
            raise UnsupportedError(f"LiteRT cannot load the file: {error}{hint}") from error

    def dispatch(self) -> Any:
        """Invokes the program, which returns when its outputs are complete."""
        self._invoke()
        return self._program

    def synchronize(self, outputs: Any) -> None:
        """Does nothing: `dispatch` is synchronous."""

    def fetch(self, outputs: Program) -> list[Any]:
        """Copies the outputs out of the program; int8 ones become fp32."""
        return outputs.outputs()

    def replace_inputs(self, inputs: Sequence[Array]) -> bool:
        """Writes them into the program's tensors."""
        self._program.set_inputs(tuple(inputs))
        return True

    def poison_outputs(self) -> None:
        """Fills the output tensors."""
        self._program.fill_outputs(poison)

    def output_rule(self) -> OutputRule:
        """The interpreter owns all tensors."""
        return OutputRule(
            modes=("bound",),
            reason="the interpreter owns its outputs, and every run writes to the same memory",
        )

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        """Lists operations without times, which LiteRT's Python interface does not report."""
        counts = Counter(self._program.operations())
        found = OperatorProfile(
            stack=f"LiteRT {version('ai-edge-litert')}",
            iterations=iterations,
            operators=tuple(
                Operator(name=name, does=name, calls=count) for name, count in counts.items()
            ),
            remarks=("LiteRT's Python interface lists operations without their times",),
        )
        return [write(found, directory)]

    def host_settings(self) -> HostSettings:
        """Returns the settings passed to the interpreter, which does not report any."""
        return HostSettings(
            threads=self.context.threads, threads_told_by="num_threads of the Interpreter"
        )

    def facts(self) -> BackendFacts:
        """Returns size and digest of the file, which holds program and weights."""
        facts = BackendFacts(
            weights="parameters",
            artifact_sha256=self._file["sha256"],
            artifact_size_bytes=self._file["size_bytes"],
        )
        facts.notes["precision"] = self._file["precision"]
        facts.notes["origin"] = self._file["origin"]
        facts.notes["converter"] = self._file["versions"]
        facts.notes |= self._file.get("notes", {})
        facts.notes["dispatch"] = SYNCHRONOUS
        facts.notes["edge_types"] = self._program.edge_types()
        facts.notes["tensor_types"] = self._program.tensor_types()
        return facts
