"""Published programs in the shape of an export: the program, its weights, who takes which."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from comparative_benchmark.xla_hlo.exported_program import ExportedProgram
from openxla.benchmark.artifacts import archives

_TYPES = {"stablehlo": "stablehlo_bytecode", "hlo-text": "xla_hlo_dump"}


def program(
    exported: Mapping[str, tuple[Path, ...]], form: str, directory: Path
) -> ExportedProgram:
    """Returns a published program as if it had been exported into a directory.

    Args:
      exported: files by type of artifact, see `BACKEND.starts_from`.
      form: one of `FORMS`.
      directory: empty.

    Raises:
      StoreError: the archive of the weights is damaged.
    """
    (path,) = exported[_TYPES[form]]
    files = {file.name.partition(".")[2]: file for file in exported["xla_weights"]}
    inputs = json.loads(files["json"].read_text(encoding="utf-8"))["inputs"]
    found = ExportedProgram(directory=directory, form=form, inputs=inputs, versions={})
    shutil.copyfile(path, found.path)
    archives.unpack(files["tgz"], found.weights_directory)
    return found
