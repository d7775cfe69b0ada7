"""Tensors of a checkpoint: the safetensors format, and the variables that they fill.

Files are read and written one tensor at a time. The library is not used because it only writes what
is in memory all at once, does not promise the same bytes for the same tensors, and reads through a
mapping whose pages count towards the peak memory of the process (BERT large in JAX: 2.9 GiB instead
of 1.6 GiB). The format is a length, a JSON header, and the data
(https://huggingface.co/docs/safetensors).

`Architecture.module_name` gives the module of a tensor. The names and layouts of a module's
variables are the same for all JAX and TensorFlow modules of ours and defined here.
"""

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from openxla.benchmark.models.architectures import Architecture

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

# Attribute names, and positions in lists: ("layers", 0, "attention", "query", "kernel").
VariablePath: TypeAlias = tuple[str | int, ...]
Array: TypeAlias = npt.NDArray[np.generic]

# torch's tensor name -> names of our variables. A table, such as the positions, may be a
# variable by itself, with the module's name.
_VARIABLES = {
    "weight": ("kernel", "depthwise_kernel", "scale", "embedding", None),
    "running_mean": ("mean",),
    "running_var": ("var",),
}
# By number of dimensions: from [out, in, ...] to [..., in, out], i.e. channels-last.
_KERNEL_LAYOUTS = {2: (1, 0), 3: (2, 1, 0), 4: (2, 3, 1, 0)}
_DEPTHWISE_LAYOUT = (2, 3, 0, 1)  # [channels, 1, height, width] -> [height, width, channels, 1]
_MOST_NAMED = 8


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


def write_safetensors(
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
            raise ValueError(f"truncated: expected at least {8 + length + end} bytes")
        for name, facts in header.items():
            dtype, shape = _dtype(facts["dtype"]), tuple(map(int, facts["shape"]))
            begin, end = map(int, facts["data_offsets"])
            size = dtype.itemsize * math.prod(shape)
            if begin < 0 or min(shape, default=0) < 0 or end - begin != size:
                raise ValueError(f"{name} is {dtype}{list(shape)}, but spans bytes {begin}-{end}")
            yield name, (path, dtype, shape, 8 + length + begin)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path.name} is not a valid safetensors file: {error}") from error


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(_DTYPES[name])


def placed_variables(
    architecture: Architecture,
    config: Mapping[str, Any],
    shapes: Mapping[VariablePath, Sequence[int]],
    tensors: Mapping[str, Array],
) -> Iterator[tuple[VariablePath, str, Array]]:
    """Yields path, checkpoint's name and value of each variable, one tensor in memory at a time.

    Args:
      architecture: architecture of the checkpoint.
      config: the model's configuration.
      shapes: shape of each variable, by path.
      tensors: the checkpoint.

    Raises:
      ValueError: raised after all matching tensors, if a tensor is missing, has another shape or no
        variable, or if a variable is left unset.
    """
    missing, homeless, mismatched, unset = [], [], [], dict.fromkeys(shapes)
    for init in architecture.tensors(config):
        if init.dtype == "I64" or init.name.startswith(architecture.unused_tensors):
            continue  # counters are not used either
        path = _path(architecture.module_name(init.name, config), shapes)
        if path is None:
            homeless.append(init.name)
            continue
        unset.pop(path, None)
        if init.name not in tensors:
            missing.append(init.name)
            continue
        value = tensors[init.name]
        if path[-1] == "depthwise_kernel":
            value = value.transpose(_DEPTHWISE_LAYOUT)
        elif path[-1] == "kernel" and not (value.ndim == 2 and architecture.matrices_are_in_out):
            value = value.transpose(_KERNEL_LAYOUTS[value.ndim])
        if value.shape != tuple(shapes[path]):
            expected = tuple(shapes[path])
            mismatched.append(f"{init.name} is {value.shape}, but {_text(path)} is {expected}")
            continue
        yield path, init.name, value
    faults = {
        "the checkpoint lacks": missing,
        "shapes differ": mismatched,
        "tensors without a variable": homeless,
        "variables without a tensor": list(map(_text, unset)),
    }
    problems = [f"{fault}: {some_names(names)}" for fault, names in faults.items() if names]
    if problems:
        raise ValueError(f"the weights do not match {architecture.name}: " + "; ".join(problems))


def _path(name: str, shapes: Mapping[VariablePath, Sequence[int]]) -> VariablePath | None:
    """Returns the path of the variable for a tensor, given our name of the tensor."""
    path = tuple(int(part) if part.isdigit() else part for part in name.split("."))
    *module, last = path
    variables = _VARIABLES.get(str(last), ())
    ours = [tuple(module) if variable is None else (*module, variable) for variable in variables]
    return next((candidate for candidate in (*ours, path) if candidate in shapes), None)


def _text(path: VariablePath) -> str:
    return "/".join(map(str, path))


def some_names(names: Sequence[str]) -> str:
    """Returns a shortened list of names for messages."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
