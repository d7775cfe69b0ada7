"""Exports a JAX or TensorFlow model to a framework-free program in a child process."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.backends import child_process
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
    InputType,
    check_parameters,
)
from comparative_benchmark.xla_hlo.exporters import exporter_for


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
    found, own_times_ms = child_process.call(
        f"{__name__}:export_here", arguments, phase, name="the export process"
    )
    return ExportedProgram(directory=directory, form=form, **found), own_times_ms


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


_TEXT = "program.hlo.txt"
_FORMS = {
    "stablehlo": "a portable StableHLO artifact (VHLO bytecode)",
    "hlo-text": "HLO text before optimisations",
    "hlo-proto": "a serialised HloModuleProto before optimisations",
}

_NOTE = (
    "No wheel contains the tools named in commands.sh: build them from XLA's source "
    "(`bazel build -c opt //xla/tools:run_hlo_module "
    "//xla/tools/multihost_hlo_runner:hlo_runner_main`). They generate their inputs, so they show "
    "compilation failures, crashes and speeds. run_hlo_module also shows wrong numbers, because it "
    "compares with an interpreter. run.py uses the measured inputs."
)


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
        commands=_commands(),
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


def _commands() -> tuple[Command, ...]:
    return (
        Command(
            comment="Compile and run it, run it in XLA's interpreter too, and compare the outputs.",
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
