"""Jobs for the processes of an exporter, and the entry points of these processes.

The entry points run in a worker (see `engine.worker.executor.Executor`); values are plain JSON.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec

from comparative_benchmark.backends.api import (
    Array,
    BackendContext,
    ModelDefinition,
    Reference,
    installed_versions,
    load_object,
    untimed,
)
from openxla.benchmark import devices
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.models.model_interfaces import TOKENS

_SUITE = "common-benchmark-suite"


class NotRunError(Exception):
    """Raised by a consumer that cannot run a valid program on this machine; gives the reason."""


@attrs.frozen(kw_only=True)
class Job:
    """One export, or the reading of one.

    Attributes:
      definition: definition of the model.
      architecture: architecture that it shares with other frameworks, if any.
      inputs: files of its inputs, in order.
      truth: files of its float64 outputs.
      reference: files of its outputs in its own type.
      second: files of inputs, truth and reference of its second input, by their path relative to
        the manifest; empty if it has none.
      workload: manifest of these files.
      directory: directory of the artifact's files.
      companions: directories with artifacts of other kinds.
      scratch: temporary directory shared by both processes of a kind.
      options: see `Kind.options`.
      threads: number of compute threads.
    """

    definition: ModelDefinition
    architecture: str | None
    inputs: tuple[Path, ...]
    truth: tuple[Path, ...]
    reference: tuple[Path, ...]
    second: Mapping[str, Path]
    workload: Path
    directory: Path
    companions: tuple[Path, ...]
    scratch: Path
    options: Mapping[str, str]
    threads: int

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "Job":
        """Returns the job that `as_json` wrote."""
        return msgspec.convert(values, cls, dec_hook=lambda kind, value: kind(value))

    def as_json(self) -> dict[str, Any]:
        """Returns the job as a JSON value."""
        values: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return values

    def model(self) -> Any:
        """Creates the model."""
        return self.definition.create()

    def arrays(self) -> list[Array]:
        """Reads the inputs."""
        return [array_files.load(path) for path in self.inputs]

    def find(self, name: str) -> Path:
        """Returns a file of the artifact or of a companion.

        Raises:
          FileNotFoundError: neither has it.
        """
        for directory in (self.directory, *self.companions):
            if (directory / name).exists():
                return directory / name
        raise FileNotFoundError(
            f"no file {name} in the artifact or in the artifacts that it requires"
        )

    def context(self, compiler: str) -> BackendContext:
        """Returns a context for a backend that does a part of the work."""
        return BackendContext(
            compiler=compiler,
            options=(),
            device=devices.HOST_CPU,
            threads=self.threads,
            work_dir=self.scratch,
            phase=untimed,
        )


def export(function: str, producers: Sequence[str], job: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the files of an artifact; returns the versions of the packages that produced them."""
    todo = Job.read(job)
    todo.directory.mkdir(parents=True, exist_ok=True)
    load_object(function)(todo)
    return {"versions": installed_versions((_SUITE, *producers))}


def read_back(function: str, outputs: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Reads an artifact, runs it if it is a program, and saves the outputs.

    Returns:
      The names of the output files, in order; or why it was not run.
    """
    try:
        values = load_object(function)(Job.read(job))
    except NotRunError as error:
        return {"not_run": str(error)}
    return {
        "files": [saved["file"] for saved in array_files.save_all(Path(outputs), "output", values)]
    }


def judge_along(
    reference: str, definition: Mapping[str, Any], inputs: Sequence[str], tokens: str, target: str
) -> dict[str, Any]:
    """Saves truth and reference of a generating model that is given a program's tokens.

    Args:
      reference: `module:function` that computes both.
      definition: definition of the model.
      inputs: files of the prompt.
      tokens: file of the tokens, i32[batch, steps].
      target: directory for the two folders.

    Returns:
      The names of the files in each folder, in order.
    """
    compute: Reference = load_object(reference)
    model = ModelDefinition(**definition).create()
    given = [array_files.load(Path(path)) for path in inputs]
    forced = model.verification_inputs(given, {TOKENS: array_files.load(Path(tokens))})
    kinds = ("truth", "reference")
    return {
        kind: [
            saved["file"] for saved in array_files.save_all(Path(target) / kind, "output", values)
        ]
        for kind, values in zip(kinds, compute(model, forced), strict=True)
    }
