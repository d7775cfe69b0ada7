"""Published programs for IREE: torch-mlir with an archive of weights, or StableHLO with arrays."""

from collections.abc import Mapping
from pathlib import Path

from comparative_benchmark.backends import published_weights
from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.iree import program
from openxla.benchmark.artifacts import arrays


def imported(
    exported: Mapping[str, tuple[Path, ...]], scratch: Path
) -> tuple[program.ImportedProgram, Path | None]:
    """Returns a program, and the archive with its weights where they come as one.

    Args:
      exported: files by type of artifact, see `BACKEND.starts_from`.
      scratch: where weights may be unpacked.

    Raises:
      UnsupportedError: the weights are not successive arguments.
      StoreError: the archive of the weights is damaged.
    """
    if "torch_mlir" in exported:
        (path,), (archive,) = exported["torch_mlir"], exported["irpa"]
        # The program names its parameters by itself.
        content = path.read_bytes()
        return program.ImportedProgram(mlir=content, input_type="torch", parameters={}), archive
    (path,) = exported["stablehlo_mlir"]
    target = scratch / "weights"
    places = published_weights.unpack(exported["xla_weights"], target)
    weights_at = [index for index, source in enumerate(places) if source is None]
    first = weights_at[0] if weights_at else 0
    if weights_at != list(range(first, first + len(weights_at))):
        raise UnsupportedError(
            "the weights of the published program are not consecutive arguments: omit "
            "--exported-programs to export it here"
        )
    weights = arrays.load_all(target, published_weights.STEM)
    names = [f"weight_{index}" for index in range(len(weights))]
    text = path.read_text(encoding="utf-8")
    return program.from_stablehlo(text, names, weights, first=first), None
