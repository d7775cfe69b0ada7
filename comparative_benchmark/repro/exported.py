"""What passes between the parent and the worker that exports: a task, and what came of it."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.backends.api import Array, BackendContext, ModelDefinition


@attrs.frozen(kw_only=True)
class ExportTask:
    """What an exporter is to export.

    Attributes:
      context: of the backend whose program it is; its phases are not timed.
      definition: of the model.
      inputs: one array for each argument of the model.
      directory: the reproducer's; exists.
    """

    context: BackendContext
    definition: ModelDefinition
    inputs: tuple[Array, ...]
    directory: Path

    def model(self) -> Any:
        """Makes the model, in its framework."""
        module = importlib.import_module(self.definition.module_path)
        return module.create_model(**self.definition.parameters)


@attrs.frozen(kw_only=True)
class Command:
    """A command line that goes with a program.

    Attributes:
      comment: what it does, and where the tool comes from if no wheel has it.
      arguments: program and arguments, to be run in the reproducer's directory.
      is_packaged: whether the packages of `requirements.txt` bring the tool.
    """

    comment: str
    arguments: tuple[str, ...]
    is_packaged: bool = True


@attrs.frozen(kw_only=True)
class Exported:
    """A program that has been exported to a directory.

    Attributes:
      script: template of `run.py`, without its ending.
      settings: what stands for `${NAME}` in the template: texts as they are, other JSON values as
        Python writes them.
      packages: distributions that `run.py` imports.
      files: what each file or folder that the exporter wrote is, by its name.
      modules: further templates that `run.py` imports.
      commands: command lines that do what `run.py` does, or part of it.
      notes: what a reader must know of how this differs from what was measured.
      program_sha256: of the compiled program or the file, where it is to be the measured one's.
    """

    script: str
    settings: Mapping[str, Any]
    packages: tuple[str, ...]
    files: Mapping[str, str]
    modules: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    notes: tuple[str, ...] = ()
    program_sha256: str | None = None

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "Exported":
        """Returns what `attrs.asdict` made a JSON value of."""
        fields = dict(value)
        commands = [
            Command(**{**item, "arguments": tuple(item["arguments"])})
            for item in fields.pop("commands")
        ]
        for name in ("packages", "modules", "notes"):
            fields[name] = tuple(fields[name])
        return cls(commands=tuple(commands), **fields)
