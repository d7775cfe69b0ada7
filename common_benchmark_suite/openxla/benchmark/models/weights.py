"""Maps the tensors of a checkpoint to variables of our own JAX and TensorFlow modules.

`Architecture.module_name` gives the module of a tensor. The names and layouts of a module's
variables are the same for all modules and defined here.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from openxla.benchmark.models.architectures import Architecture

# Attribute names, and positions in lists: ("layers", 0, "attention", "query", "kernel").
Path: TypeAlias = tuple[str | int, ...]
Array: TypeAlias = npt.NDArray[np.generic]

# torch's tensor name -> names of our variables. A table, such as that of positions, may be a
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


def placed(
    architecture: Architecture,
    config: Mapping[str, Any],
    shapes: Mapping[Path, Sequence[int]],
    tensors: Mapping[str, Array],
) -> Iterator[tuple[Path, str, Array]]:
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
            due = tuple(shapes[path])
            mismatched.append(f"{init.name} is {value.shape}, but {_text(path)} is {due}")
            continue
        yield path, init.name, value
    faults = {
        "the checkpoint lacks": missing,
        "shapes differ": mismatched,
        "tensors without a variable": homeless,
        "variables without a tensor": list(map(_text, unset)),
    }
    found = [f"{fault}: {some_names(names)}" for fault, names in faults.items() if names]
    if found:
        raise ValueError(f"the weights do not match {architecture.name}: " + "; ".join(found))


def _path(name: str, shapes: Mapping[Path, Sequence[int]]) -> Path | None:
    """Returns the path of the variable for a tensor, given our name of the tensor."""
    path = tuple(int(part) if part.isdigit() else part for part in name.split("."))
    *module, last = path
    variables = _VARIABLES.get(str(last), ())
    ours = [tuple(module) if variable is None else (*module, variable) for variable in variables]
    return next((candidate for candidate in (*ours, path) if candidate in shapes), None)


def _text(path: Path) -> str:
    return "/".join(map(str, path))


def some_names(names: Sequence[str]) -> str:
    """Returns a shortened list of names for messages."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
