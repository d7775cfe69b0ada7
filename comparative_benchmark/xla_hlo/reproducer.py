"""XLA without a framework: the program that the backend's own export process writes."""

import shutil
import tempfile
from pathlib import Path

from comparative_benchmark.backends.reproducing import Command, Exported, ExportTask
from comparative_benchmark.xla_hlo.export import export as export_program
from comparative_benchmark.xla_hlo.exported_program import FORMS

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


def export(task: ExportTask) -> Exported:
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
