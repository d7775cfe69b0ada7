"""TFLite: convert in a child process, or use a file, then run it in the LiteRT interpreter."""

import importlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import attrs
import numpy as np

from comparative_benchmark.backends import child_process
from comparative_benchmark.backends.api import (
    Array,
    Backend,
    BackendContext,
    BackendFacts,
    ModelDefinition,
    OutputRule,
    PhaseTimer,
    UnsupportedError,
)
from comparative_benchmark.backends.exported_programs import Command, Exported, ExportTask
from comparative_benchmark.backends.host_settings import HostSettings
from comparative_benchmark.backends.operator_profile import Operator, OperatorProfile, write
from comparative_benchmark.backends.resident_programs import SYNCHRONOUS, poison
from comparative_benchmark.tflite import BACKEND
from openxla.benchmark.artifacts.workload_store import WorkloadCost
from openxla.benchmark.def_types import TensorSpec
from openxla.benchmark.files import sha256_of
from openxla.benchmark.models.checkpoints import CheckpointError
from openxla.benchmark.models.preprocessing import element_type_of, numpy_dtype
from openxla.benchmark.models.tflite import conversion
from openxla.benchmark.models.tflite.program import Program
from openxla.benchmark.models.tflite.tflite_model import TfLiteModel

_DIES = (
    "LiteRT crashes on this model's int8 file (signal {signal}). Models that divide values with "
    "very different ranges can cause this; choose the compiler dynamic-range, or the model in "
    "TensorFlow"
)
_NOTE = (
    "The ai-edge-litert wheel does not contain `benchmark_model`: build it from LiteRT's source, "
    "or download a nightly binary."
)


def export_file(
    definition: ModelDefinition,
    inputs: Sequence[Array],
    compiler: str,
    directory: Path,
    phase: PhaseTimer,
    *,
    xnnpack: bool = True,
) -> dict[str, Any]:
    """Returns the path of a model's file, its properties, and what made it.

    Args:
      definition: definition of the model.
      inputs: arrays of the shapes and types that the file takes.
      compiler: a compiler of the backend.
      directory: existing directory for a new file `model.tflite`.
      phase: times the phases of the process.
      xnnpack: whether the file is to run with XNNPACK.

    Raises:
      UnsupportedError: the compiler does not support such a model, TFLite cannot hold the model in
        that way, or a published file is missing.
      MemoryError: the process was killed, as by the kernel when memory runs out.
      RuntimeError: the conversion failed; the message is the child's.
    """
    if definition.parameters.get("program") == "TFLite":
        if compiler != "native":
            raise UnsupportedError(
                f"{compiler} cannot convert a .tflite file, because its precision is fixed; choose "
                "--backend tflite:native"
            )
        path = Path(definition.parameters["source"])
        return {**described(path, "the file's own precision"), "origin": "brought", "versions": {}}
    specs = specs_of(inputs)
    arguments = {
        "definition": attrs.asdict(definition),
        "inputs": [{"shape": list(spec.shape), "dtype": spec.dtype} for spec in specs],
        "compiler": compiler,
        "directory": str(directory),
        "xnnpack": xnnpack,
    }
    file: dict[str, Any]
    file, _ = child_process.call(
        f"{__name__}:export_here", arguments, phase, name="the conversion process"
    )
    return file


def specs_of(inputs: Sequence[Array]) -> list[TensorSpec]:
    """Returns shapes and element types of arrays."""
    return [TensorSpec(shape=value.shape, dtype=element_type_of(value.dtype)) for value in inputs]


def export_here(
    channel: child_process.Channel,
    definition: Mapping[str, Any],
    inputs: Sequence[Mapping[str, Any]],
    compiler: str,
    directory: str,
    xnnpack: bool,
) -> dict[str, Any]:
    """Makes or finds the file in this process; see `export_file`."""
    with channel.phase("import"):
        importlib.import_module(definition["module_path"])
    try:
        with channel.phase("load"):
            model = ModelDefinition(**definition).create()
        if isinstance(model, TfLiteModel):
            return _given(model, compiler, channel.phase)
        model = conversion.adapted(model)
        with channel.phase("import"):
            importlib.import_module("tensorflow")
        specs = [TensorSpec(**item) for item in inputs]
        precision = BACKEND.compiler(compiler).precision or "fp32"
        notes: dict[str, Any] = {}
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            content = conversion.convert(
                model, specs, precision, Path(scratch), phase=channel.phase, notes=notes
            )
    except (conversion.NotConvertibleError, CheckpointError) as error:
        raise UnsupportedError(str(error)) from error
    path = Path(directory) / "model.tflite"
    path.write_bytes(content)
    if precision == "int8":
        # Some int8 files crash the process that loads or runs them.
        with channel.unsupported_if_killed(_DIES):
            _probe(path, specs, xnnpack=xnnpack)
    return {
        **described(path, precision),
        "origin": "converted",
        "versions": conversion.versions(),
        "notes": notes,
    }


def described(path: Path, precision: str) -> dict[str, Any]:
    """Returns facts about the file: path, digest, size, and precision."""
    return {
        "path": str(path),
        "sha256": sha256_of(path),
        "size_bytes": path.stat().st_size,
        "precision": precision,
    }


def _probe(path: Path, inputs: Sequence[TensorSpec], *, xnnpack: bool) -> None:
    """Loads and runs a file once, on zeros.

    Raises:
      UnsupportedError: LiteRT refuses the file.
    """
    from openxla.benchmark.models.tflite.program import Program

    try:
        program = Program(path, threads=1, xnnpack=xnnpack)
        program.set_inputs([np.zeros(spec.shape, numpy_dtype(spec.dtype)) for spec in inputs])
        program.invoke()
    except RuntimeError as error:
        hint = "; choose int8+no-xnnpack" if xnnpack else ""
        raise UnsupportedError(
            f"LiteRT cannot run this model's int8 file: {error}{hint}"
        ) from error


def _given(model: TfLiteModel, compiler: str, phase: PhaseTimer) -> dict[str, Any]:
    """Returns the file of a case that is a file, in its own precision."""
    precision = model.uri.precision
    fitting = next(
        info.name
        for info in BACKEND.compilers
        if info.name != "native" and (info.precision or "fp32") == precision
    )
    if compiler not in ("native", fitting):
        raise UnsupportedError(
            f"the precision of this TFLite file is fixed at {precision}; choose --backend tflite "
            f"or tflite:{fitting}"
        )
    with phase("prepare"):
        file = model.file()
    return {
        "path": str(file.path),
        "sha256": file.sha256,
        "size_bytes": file.size_bytes,
        "precision": precision,
        "origin": file.origin,
        "versions": file.notes.get("converter", {}),
        "notes": {name: value for name, value in file.notes.items() if name != "converter"},
    }


def export_reproducer(task: ExportTask) -> Exported:
    """Writes `model.tflite`."""
    context = task.context
    uses_xnnpack = _uses_xnnpack(context)
    file = _file(task)
    changes = file.get("notes", {}).items()
    shutil.copyfile(file["path"], task.directory / "model.tflite")
    resolver = "AUTO" if uses_xnnpack else "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
    return Exported(
        settings={"threads": context.threads, "resolver": resolver},
        packages=("ai-edge-litert", "numpy"),
        files={"model.tflite": f"program and weights, in {file['precision']}; {file['origin']}"},
        commands=(
            Command(
                comment="Time it with LiteRT's own tool, which generates its own inputs.",
                arguments=(
                    *("benchmark_model", "--graph=model.tflite"),
                    f"--num_threads={context.threads}",
                    f"--use_xnnpack={str(uses_xnnpack).lower()}",
                ),
                is_packaged=False,
            ),
        ),
        notes=(_NOTE, *(f"Changed by the conversion: {name}, {text}." for name, text in changes)),
        program_sha256=file["sha256"],
    )


def _uses_xnnpack(context: BackendContext) -> bool:
    return "no-xnnpack" not in context.options


def _export(
    definition: ModelDefinition, inputs: Sequence[Array], context: BackendContext
) -> dict[str, Any]:
    xnnpack = _uses_xnnpack(context)
    return export_file(
        definition, inputs, context.compiler, context.work_dir, context.phase, xnnpack=xnnpack
    )


def _file(task: ExportTask) -> Mapping[str, Any]:
    """Returns the result of the conversion, or the file's facts if LiteRT cannot run it.

    The conversion writes the file before it tries to run it, so a reproducer can include it.

    Raises:
      UnsupportedError: there is no file.
    """
    context = task.context
    try:
        return _export(task.definition, task.inputs, context)
    except UnsupportedError as error:
        path = context.work_dir / "model.tflite"
        if not path.is_file():
            raise
        return {**described(path, context.compiler), "origin": f"converted; {error}"}


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
    workload_cost: WorkloadCost = module.cost(source, inputs)
    return workload_cost


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
        return _export(self._definition, self._arrays, context)

    def _load_program(self, path: Path) -> Program:
        xnnpack = _uses_xnnpack(self.context)
        try:
            return Program(path, threads=self.context.threads, xnnpack=xnnpack)
        except RuntimeError as error:
            hint = f"; choose {self.context.compiler}+no-xnnpack" if xnnpack else ""
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
        profile = OperatorProfile(
            stack=f"LiteRT {version('ai-edge-litert')}",
            iterations=iterations,
            operators=tuple(
                Operator(name=name, does=name, calls=count) for name, count in counts.items()
            ),
            remarks=("LiteRT's Python interface lists operations without their times",),
        )
        return [write(profile, directory)]

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
        facts.notes |= {name: self._file[name] for name in ("precision", "origin")}
        facts.notes["converter"] = self._file["versions"]
        facts.notes |= self._file.get("notes", {})
        facts.notes["dispatch"] = SYNCHRONOUS
        facts.notes["edge_types"] = self._program.edge_types()
        facts.notes["tensor_types"] = self._program.tensor_types()
        return facts
