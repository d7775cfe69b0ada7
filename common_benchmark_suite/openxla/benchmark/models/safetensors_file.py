"""Checkpoints in the safetensors format, one tensor in memory at a time.

The library is not used because it only writes what is in memory all at once, does not promise the
same bytes for the same tensors, and reads through a mapping whose pages count towards the peak
memory of the process (BERT large in JAX: 2.9 GiB instead of 1.6 GiB). The format is a length, a
JSON header, and the data (https://huggingface.co/docs/safetensors).
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

Tensor = npt.NDArray[Any]
# File, element type, shape, and offset in the file.
_Entry: TypeAlias = tuple[Path, np.dtype[Any], tuple[int, ...], int]

_DTYPES: Mapping[str, npt.DTypeLike] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
_MAX_HEADER_BYTES = 100_000_000


class SafetensorsFile(Mapping[str, Tensor]):
    """The tensors of one or more files of a model; each is read when requested.

    Raises:
      ValueError: a file is not in the format, or is truncated.
    """

    def __init__(self, *paths: Path) -> None:
        self._entries = {name: entry for path in paths for name, entry in _entries(path)}

    def __getitem__(self, name: str) -> Tensor:
        path, dtype, shape, offset = self._entries[name]
        count = int(np.prod(shape, dtype=np.int64))
        return np.fromfile(path, dtype, count, offset=offset).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns a tensor's shape, from the header alone."""
        return self._entries[name][2]

    def renamed(self, name_of: Callable[[str], str]) -> "SafetensorsFile":
        """Returns the same tensors under other names."""
        renamed = copy.copy(self)
        renamed._entries = {  # noqa: SLF001  # our own class
            name_of(name): entry for name, entry in self._entries.items()
        }
        return renamed


def write(
    path: Path,
    signatures: Mapping[str, tuple[str, tuple[int, ...]]],
    tensor: Callable[[str], Tensor],
) -> None:
    """Writes tensors, requesting one at a time.

    Args:
      path: the file to write.
      signatures: type (`F32` ...) and shape by name.
      tensor: returns the tensor of a name.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    # Wide elements first, so that every tensor starts at a multiple of its element's size.
    order = sorted(signatures, key=lambda name: (-_dtype(signatures[name][0]).itemsize, name))
    for name in order:
        dtype, shape = signatures[name]
        end = offset + _dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(tensor(name).astype(_dtype(signatures[name][0]), copy=False).tobytes())


def _entries(path: Path) -> Iterator[tuple[str, _Entry]]:
    """Yields name and location of each tensor of a file."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _MAX_HEADER_BYTES:
                raise ValueError(f"its header is too long ({length} bytes)")
            header: dict[str, Any] = json.loads(file.read(length))
        header.pop("__metadata__", None)
        end = max((int(facts["data_offsets"][1]) for facts in header.values()), default=0)
        if path.stat().st_size < 8 + length + end:
            raise ValueError(f"it is truncated, expected {8 + length + end} bytes")
        for name, facts in header.items():
            offset = 8 + length + int(facts["data_offsets"][0])
            yield name, (path, _dtype(facts["dtype"]), tuple(facts["shape"]), offset)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path.name} is not a valid safetensors file: {error}") from error


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(_DTYPES[name])
