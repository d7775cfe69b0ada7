"""Published and exported programs: digests, weights, and their stored truth."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import Array
from openxla.benchmark.artifacts import archives


def of_parts(*parts: str | bytes) -> bytes:
    """Returns the sha256 of parts; lengths are included, so that boundaries matter."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.digest()


def of_set(contents: Iterable[bytes]) -> str:
    """Returns the sha256 of several contents, independent of their order."""
    digests = sorted(hashlib.sha256(content).digest() for content in contents)
    return hashlib.sha256(b"".join(digests)).hexdigest()


def joint(digests: Sequence[str]) -> str:
    """Returns the digest of several programs, or of the only one."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


STEM = "weight"


def unpack(files: Sequence[Path], target: Path) -> list[int | None]:
    """Unpacks weights into a new directory, in the order of the parameters that take them.

    Args:
      files: files of the artifact `xla_weights`.
      target: directory for `weight_0.npy` and so on.

    Returns:
      For each parameter of the program, the index of its input; None for a weight.

    Raises:
      StoreError: the archive is damaged.
    """
    by_ending = {file.name.partition(".")[2]: file for file in files}
    archives.unpack(by_ending["tgz"], target)
    places: list[int | None] = json.loads(by_ending["json"].read_text(encoding="utf-8"))["inputs"]
    return places


def compute(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs in float64, and of a plain run in the program's own type.

    See `openxla.benchmark.user_models.programs.program_model`.
    """
    found: tuple[list[Any], list[Any]] = model.truth_and_reference(inputs)
    return found
