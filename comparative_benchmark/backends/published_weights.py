"""The weights of published XLA programs: arrays in an archive, and who takes which."""

import json
from collections.abc import Sequence
from pathlib import Path

from openxla.benchmark.artifacts import archives

STEM = "weight"


def unpack(files: Sequence[Path], target: Path) -> list[int | None]:
    """Unpacks weights, in the order of the parameters that take them, into a new directory.

    Args:
      files: of the artifact `xla_weights`.
      target: where `weight_0.npy` and so on go.

    Returns:
      For each parameter of the program the input that it takes; None for a weight.

    Raises:
      StoreError: the archive is damaged.
    """
    by_ending = {file.name.partition(".")[2]: file for file in files}
    archives.unpack(by_ending["tgz"], target)
    places: list[int | None] = json.loads(by_ending["json"].read_text(encoding="utf-8"))["inputs"]
    return places
