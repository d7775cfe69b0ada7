"""Exports a JAX or TensorFlow model to a framework-free program in a child process.

An exporter imports its framework when it is created.
"""

import io
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import attrs
import numpy as np

from comparative_benchmark.backends import child_process, host_settings
from comparative_benchmark.backends.api import (
    Array,
    ModelDefinition,
    PhaseTimer,
    UnsupportedError,
    installed_versions,
)
from comparative_benchmark.backends.exported_programs import Command, Exported, ExportTask
from comparative_benchmark.xla_hlo.exported_program import (
    FORMS,
    ExportedProgram,
    HloModule,
    InputType,
    check_parameters,
)
from comparative_benchmark.xla_hlo.private_jaxlib import extension

_STAGES = {"stablehlo": "stablehlo_serialized", "hlo-text": "hlo_serialized"}
_TEXT = "program.hlo.txt"
_FORMS = {
    "stablehlo": "a portable StableHLO artifact (VHLO bytecode)",
    "hlo-text": "HLO text before optimisations",
    "hlo-proto": "a serialised HloModuleProto before optimisations",
}
_NOTE = (
    "No wheel contains the tools named in commands.sh: build them from XLA's source "
    "(`bazel build -c opt //xla/tools:run_hlo_module "
    "//xla/tools/multihost_hlo_runner:hlo_runner_main`). They generate their own inputs, whereas "
    "run.py uses the measured ones. Both tools show compilation failures, crashes and speeds. Only "
    "run_hlo_module detects wrong outputs, because it compares them with an interpreter's."
)


def export_program(
    definition: ModelDefinition,
    inputs: Sequence[Array],
    form: str,
    directory: Path,
    phase: PhaseTimer,
    *,
    platform: str = "cpu",
) -> tuple[ExportedProgram, dict[str, float]]:
    """Exports a model in a child process; phases `load`, `trace` and `lower`.

    Args:
      definition: definition of the model.
      inputs: arrays of the shapes and types that the program takes.
      form: one of `FORMS`.
      directory: existing directory for the program.
      phase: times the phases here.
      platform: XLA's name of the platform to compile for: `cpu` or `cuda`.

    Returns:
      The program, and the time of each phase in ms by the child's own clock.

    Raises:
      UnsupportedError: no exporter supports such a model.
      MemoryError: memory ran out.
      RuntimeError: the export failed; the message names the error, a note holds its traceback.
    """
    arguments = {
        "definition": attrs.asdict(definition),
        "inputs": [attrs.asdict(InputType.of(value)) for value in inputs],
        "form": form,
        "directory": str(directory),
        "platform": platform,
    }
    exported, own_times_ms = child_process.call(
        f"{__name__}:export_here", arguments, phase, name="the export process"
    )
    return ExportedProgram(directory=directory, form=form, **exported), own_times_ms


def export_here(
    channel: child_process.Channel,
    definition: Mapping[str, Any],
    inputs: Sequence[Mapping[str, Any]],
    form: str,
    directory: str,
    platform: str,
) -> dict[str, Any]:
    """Exports in this process; returns the fields of an `ExportedProgram` that it determines."""
    types = [InputType(**item) for item in inputs]
    with channel.phase("load"):
        model = ModelDefinition(**definition).create()
        exporter = exporter_for(model, types, platform)
        if exporter is None:
            raise UnsupportedError(
                f"cannot export {definition['module_path']} to XLA: it is not a JAX or TensorFlow "
                "model"
            )
    with channel.phase("trace"):
        exporter.trace()
    with channel.phase("lower"):
        content = exporter.lower(form)
    with channel.phase("load"):
        arguments = exporter.arguments()
        program = ExportedProgram(
            directory=Path(directory),
            form=form,
            inputs=[item if isinstance(item, int) else None for item in arguments],
            versions=installed_versions(exporter.packages),
        )
        program.path.write_bytes(content)
        program.write_weights([item for item in arguments if not isinstance(item, int)])
    check_parameters(
        exporter.module().parameters(),
        [types[item] if isinstance(item, int) else InputType.of(item) for item in arguments],
    )
    return {"inputs": list(program.inputs), "versions": dict(program.versions)}


def export_reproducer(task: ExportTask) -> Exported:
    """Writes the program in its compiler's form, its weights, and HLO text for XLA's tools."""
    form = task.context.compiler
    program, arguments = _program(task, form)
    files = {
        program: f"the program to compile: {_FORMS[form]}",
        "weights": "its weights, in the order of their parameters",
    }
    if program != _TEXT:
        _program(task, "hlo-text")
        files[_TEXT] = "the same program as HLO text before optimisations, for XLA's own tools"
    if None not in arguments:
        del files["weights"]
    return Exported(
        settings={"program": program, "arguments": arguments, "threads": task.context.threads},
        packages=("jaxlib", "numpy", "ml_dtypes"),
        files=files,
        modules=("pjrt.py",),
        commands=_COMMANDS,
        notes=(_NOTE,),
    )


def _program(task: ExportTask, form: str) -> tuple[str, list[int | None]]:
    """Exports in one form; returns the program's file, and the sources of its arguments."""
    context = task.context
    with tempfile.TemporaryDirectory(dir=context.work_dir) as scratch:
        exported, _ = export_program(
            task.definition, task.inputs, form, Path(scratch), context.phase
        )
        shutil.move(exported.path, task.directory / FORMS[form])
        weights = task.directory / "weights"
        if exported.has_weights and not weights.exists():
            shutil.move(Path(scratch) / "weights", weights)
    return FORMS[form], list(exported.inputs)


_COMMANDS = (
    Command(
        comment="Compile and run it, also in XLA's interpreter, and compare the outputs.",
        arguments=("run_hlo_module", "--platform=CPU", "--input_format=hlo", _TEXT),
        is_packaged=False,
    ),
    Command(
        comment="Compile and time it.",
        arguments=(
            *("hlo_runner_main", "--device_type=host", "--input_format=text"),
            *("--num_replicas=1", "--num_partitions=1", "--num_repeats=20", _TEXT),
        ),
        is_packaged=False,
    ),
)


class Exporter(Protocol):
    """Exports models of one framework.

    Attributes:
      packages: packages of the exporter and of the models.
    """

    packages: tuple[str, ...]

    def trace(self) -> None:
        """Traces the model."""

    def lower(self, form: str) -> bytes:
        """Returns the program in one of the forms."""

    def module(self) -> HloModule:
        """Returns the program as a module, whatever its form."""

    def arguments(self) -> list[int | Array]:
        """Returns the argument of each parameter: a weight, or the index of an input."""


def exporter_for(model: Any, inputs: Sequence[InputType], platform: str) -> Exporter | None:
    """Returns an exporter for the model, chosen by the framework that its module imported.

    Libraries of each framework may have imported the other: JAX models are recognised by `apply`.
    """
    if "tensorflow" in sys.modules and not hasattr(model, "apply"):
        return TensorFlowExporter(model, inputs, platform)
    if "jax" in sys.modules:
        return JaxExporter(model, inputs, platform)
    return None


class JaxExporter:
    """Traces `apply(params, *inputs)`: the weights come before the inputs."""

    packages: tuple[str, ...] = ("jax", "jaxlib", "flax")

    def __init__(self, model: Any, inputs: Sequence[InputType], platform: str) -> None:
        import jax

        from comparative_benchmark.backends.frameworks.jax_models import precision, split

        apply, self._params = split(model)
        self._weights = jax.tree.leaves(self._params)
        self._platform = platform
        self._inputs = [jax.ShapeDtypeStruct(item.shape, np.dtype(item.dtype)) for item in inputs]
        # Keep unused arguments, so that parameters and arguments match one by one.
        self._function = jax.jit(apply, keep_unused=True)
        types = {str(leaf.dtype) for leaf in (*self._weights, *self._inputs)}
        self._precision = partial(precision, on_gpu=platform == "cuda", types=types)
        self._traced: Any = None
        self._bytecode = b""

    def trace(self) -> None:
        """Traces to a jaxpr."""
        with self._precision():
            self._traced = self._function.trace(self._params, *self._inputs)

    def lower(self, form: str) -> bytes:
        """Lowers to StableHLO, and from there to HLO if requested."""
        with self._precision():
            lowered = self._traced.lower(lowering_platforms=(self._platform,))
        module = lowered.compiler_ir("stablehlo")
        if form == "stablehlo":
            from jaxlib.mlir.dialects import stablehlo

            version = stablehlo.get_current_version()
            portable: bytes = extension.mlir.serialize_portable_artifact(module, version)
            self._bytecode = portable
            return portable
        stream = io.BytesIO()
        module.operation.write_bytecode(file=stream)
        self._bytecode = stream.getvalue()
        converted = HloModule.from_stablehlo(self._bytecode)
        return converted.text().encode() if form == "hlo-text" else converted.proto()

    def module(self) -> HloModule:
        """Returns the lowered program."""
        return HloModule.from_stablehlo(self._bytecode)

    def arguments(self) -> list[int | Array]:
        """Returns the argument of each parameter: a weight, or the index of an input."""
        return [*map(np.asarray, self._weights), *range(len(self._inputs))]


class TensorFlowExporter:
    """Traces `forward(*inputs)`: the inputs come before the variables that it reads."""

    packages: tuple[str, ...] = ("tensorflow", "keras", "jaxlib")

    def __init__(self, model: Any, inputs: Sequence[InputType], platform: str) -> None:
        import tensorflow as tf

        from comparative_benchmark.backends.frameworks.tensorflow_models import function_of

        self._platform = platform.upper()
        self._inputs = [tf.TensorSpec(item.shape, item.dtype) for item in inputs]
        self._function = function_of(model.forward, jit_compile=True)
        self._concrete: Any = None
        self._stages: Any = None

    def trace(self) -> None:
        """Traces to a graph."""
        self._concrete = self._function.get_concrete_function(*self._inputs)

    def lower(self, form: str) -> bytes:
        """Lowers the graph to HLO or StableHLO with TensorFlow's bridge."""
        if self._platform == "CUDA":
            self._set_precision()
        # This reuses the trace above, because the types are the same.
        generate = self._function.experimental_get_compiler_ir(*self._inputs)
        self._stages = lambda stage: generate(stage=stage, platform_name=self._platform)
        program: bytes = self._stages(_STAGES.get(form, "hlo_serialized"))
        if form == "hlo-text":
            # TensorFlow's own text leaves out large constants.
            return HloModule.from_proto(program).text().encode()
        return program

    def module(self) -> HloModule:
        """Returns the lowered program."""
        return HloModule.from_proto(self._stages("hlo_serialized"))

    def arguments(self) -> list[int | Array]:
        """Returns the argument of each parameter: a weight, or the index of an input."""
        from comparative_benchmark.backends.frameworks.tensorflow_models import captured

        return [*range(len(self._inputs)), *captured(self._concrete).values()]

    def _set_precision(self) -> None:
        """Forbids TF32 for float32 models; TensorFlow's bridge writes this into the program."""
        import tensorflow as tf

        held = (*self._inputs, *self._concrete.variables)
        exact = host_settings.is_float32(value.dtype.name for value in held)
        tf.config.experimental.enable_tensor_float_32_execution(not exact)
