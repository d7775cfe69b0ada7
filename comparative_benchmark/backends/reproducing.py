"""The interface of reproducers: programs exported to run without the suite.

`BackendInfo.reproducer` names a function `(ExportTask) -> Exported`, which runs in a worker: it
exports one program as the backend would for a measurement. The folder of its module contains
`run.py.txt`, the template of the script that runs the program without the suite.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.backends.api import Array, BackendContext, ModelDefinition
from comparative_benchmark.backends.resident_programs import GenerationPlan

_ONE = """\
program, inputs = opened("{name}"), check.inputs()


def run():
    return program(*inputs)
"""
_TWO = """\
from generate import generate  # noqa: E402

prefill, decode, inputs = opened("{prefill}"), opened("{decode}"), check.inputs()


def run():
    return generate(
        prefill, decode, inputs, steps={steps}, first_position={first}, changes={changes}
    )
"""


@attrs.frozen(kw_only=True)
class ExportTask:
    """The program to export.

    Attributes:
      context: context of the backend that compiles the program; its phases are not timed.
      definition: definition of the model.
      inputs: one array for each argument of the model.
      directory: the reproducer's existing directory.
    """

    context: BackendContext
    definition: ModelDefinition
    inputs: tuple[Array, ...]
    directory: Path

    def model(self) -> Any:
        """Creates the model, in its framework."""
        return self.definition.create()


@attrs.frozen(kw_only=True)
class Command:
    """A command line for an exported program.

    Attributes:
      comment: what it does, and where to get the tool if no wheel contains it.
      arguments: program and arguments, to be run in the reproducer's directory.
      is_packaged: whether the packages of `requirements.txt` include the tool.
    """

    comment: str
    arguments: tuple[str, ...]
    is_packaged: bool = True


@attrs.frozen(kw_only=True)
class Exported:
    """A program that was exported to a directory.

    Attributes:
      settings: values for `${NAME}` in the template of `run.py`: strings are inserted unchanged,
        other JSON values as Python literals.
      packages: distributions that `run.py` imports.
      files: description of each written file or folder, by name.
      modules: further templates that `run.py` imports: `generate.py` or files next to `run.py.txt`.
      commands: command lines that do what `run.py` does, or part of it.
      notes: differences from what was measured, for the reader.
      program_sha256: digest of the compiled program or the file, if it must equal the measured one.
    """

    settings: Mapping[str, Any]
    packages: tuple[str, ...]
    files: Mapping[str, str]
    modules: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    notes: tuple[str, ...] = ()
    program_sha256: str | None = None


def program_names(plan: GenerationPlan | None) -> tuple[str, ...]:
    """Returns the names of a model's programs: one, or two if the model generates."""
    return ("model",) if plan is None else ("prefill", "decode")


def calls(plan: GenerationPlan | None, files: Sequence[str]) -> str:
    """Returns the lines of `run.py` that open and call programs of these files."""
    if plan is None:
        return _ONE.format(name=files[0])
    return _TWO.format(
        prefill=files[0],
        decode=files[1],
        steps=plan.steps,
        first=plan.first_position,
        changes=plan.changes,
    )


def modules(plan: GenerationPlan | None) -> tuple[str, ...]:
    """Returns the templates that these lines import."""
    return () if plan is None else ("generate.py",)
