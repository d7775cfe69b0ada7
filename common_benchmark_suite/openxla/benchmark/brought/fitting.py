"""Do the tensors of a directory fit the architecture of ours that covers it? By their headers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openxla.benchmark.brought.wanted import BroughtError
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.safetensors_file import SafetensorsFile
from openxla.benchmark.models.weights import some_names


def unused_tensors(
    directory: Path, files: Sequence[Path], architecture: Architecture, config: Mapping[str, Any]
) -> str | None:
    """Returns a remark on tensors that no framework of the suite has a use for; None without any.

    Args:
      directory: of the model.
      files: its weights.
      architecture: that covers it.
      config: its configuration, in the keys of our implementations.

    Raises:
      BroughtError: tensors are missing or of another shape, which are named. Each framework would
        say so in its own words, after a worker has started and read the rest.
    """
    file = SafetensorsFile(*files).renamed(architecture.canonical_weight_name)
    known = {init.name: init for init in architecture.tensors(config)}
    needed = [
        init
        for name, init in known.items()
        if init.dtype != "I64" and not name.startswith(architecture.unused_tensors)
    ]
    missing = [init.name for init in needed if init.name not in file]
    if missing:
        raise BroughtError(
            f"{directory} lacks {len(missing)} of {len(needed)} tensors that its config.json "
            f"requires: {some_names(missing)}"
        )
    mismatched = [
        f"{init.name} is {_size(shape)}, expected {_size(init.shape)}"
        for init in needed
        if (shape := file.shape(init.name)) != init.shape
    ]
    if mismatched:
        raise BroughtError(
            f"{directory} has tensors that do not match its config.json: {some_names(mismatched)}"
        )
    if unused := [name for name in file if name not in known]:
        return f"{directory.name} has unused tensors: {some_names(unused)}"
    return None


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a number"
