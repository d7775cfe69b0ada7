"""Arrays as `.npy` files, bfloat16 included."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from openxla.benchmark.models.preprocessing import element_type_of

# numpy writes bfloat16 as two opaque bytes; we write no other type like that.
_BF16_ON_DISK = np.dtype("V2")


def save_all(
    directory: Path, stem: str, values: Sequence[npt.NDArray[Any]]
) -> list[dict[str, Any]]:
    """Writes `<stem>_0.npy` and so on; returns the name, shape and element type of each file."""
    directory.mkdir(parents=True, exist_ok=True)
    saved = []
    for index, value in enumerate(values):
        path = directory / f"{stem}_{index}.npy"
        # Write a new file: truncating one would crash a process that has mapped it.
        path.unlink(missing_ok=True)
        np.save(path, value, allow_pickle=False)
        saved.append(
            {"file": path.name, "shape": list(value.shape), "dtype": element_type_of(value.dtype)}
        )
    return saved


def load(path: Path, *, memory_map: bool = False) -> npt.NDArray[Any]:
    """Returns the array in a file; never unpickles.

    Raises:
      ValueError: the file is not an array, or holds Python objects.
    """
    try:
        value: npt.NDArray[Any] = np.load(
            path, mmap_mode="r" if memory_map else None, allow_pickle=False
        )
    except EOFError as error:
        raise ValueError(f"{path.name} is empty") from error
    return value.view(ml_dtypes.bfloat16) if value.dtype == _BF16_ON_DISK else value


def load_all(directory: Path, stem: str) -> list[npt.NDArray[Any]]:
    """Returns `<stem>_0`, `<stem>_1` ... of a directory, in numerical order."""
    return [load(path, memory_map=True) for path in numbered(directory, stem)]


def numbered(directory: Path, stem: str) -> list[Path]:
    """Returns the files `<stem>_<n>.npy` in numerical order: 10 comes after 9, not after 1."""
    paths = directory.glob(f"{stem}_*.npy")
    return sorted(paths, key=lambda path: int(path.stem.removeprefix(f"{stem}_")))
