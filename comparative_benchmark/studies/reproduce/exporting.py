"""Runs in a worker: builds a model and exports it as its backend would for a measurement."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.backends.api import (
    BackendContext,
    ModelDefinition,
    installed_versions,
    load_object,
    untimed,
)
from comparative_benchmark.backends.exported_programs import Exported, ExportTask
from openxla.benchmark.artifacts import array_files


def export(
    *,
    reproducer: str,
    context: Mapping[str, Any],
    definition: Mapping[str, Any],
    inputs: Sequence[str],
    directory: str,
) -> dict[str, Any]:
    """Exports a program to a directory.

    Args:
      reproducer: `module:function` of the backend that exports the program.
      context: `compiler`, `options`, `device`, `threads` and `work_dir` of a `BackendContext`.
      definition: `module_path` and `parameters` of the model.
      inputs: files with its inputs.
      directory: existing directory of the reproducer.

    Returns:
      `exported`, an `Exported` as JSON; `versions` of the packages that its script needs.

    Raises:
      UnsupportedError: the backend does not support such a model, or cannot export it.
    """
    task = ExportTask(
        context=BackendContext.read(context, untimed),
        definition=ModelDefinition(**definition),
        inputs=tuple(array_files.load(Path(path)) for path in inputs),
        directory=Path(directory),
    )
    exported: Exported = load_object(reproducer)(task)
    versions = installed_versions(exported.packages)
    return {"exported": attrs.asdict(exported), "versions": versions}
