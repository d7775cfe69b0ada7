"""Lets torchvision be imported with a PyTorch that its own library was not built for.

The index has torchvision for CUDA only. With a PyTorch for the CPU its library cannot be loaded,
and its import fails, because it describes operators that only the library defines.
They are defined here, without kernels: calls of them (detection) still fail, with an error.
"""

import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_NAME = "torchvision"
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
# Freeing a library removes its definitions.
_kept: list[Any] = []


class Finder(MetaPathFinder):
    """Finds nothing, but defines what torchvision needs when it is first looked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Returns None: the usual finders continue."""
        if fullname == _NAME:
            sys.meta_path.remove(self)
            spec = importlib.machinery.PathFinder.find_spec(_NAME)
            if spec is not None and spec.origin is not None:
                _define_missing(Path(spec.origin).parent)


def _define_missing(package: Path) -> None:
    for library in package.glob("_C*.so"):
        try:
            torch.ops.load_library(str(library))
        except OSError:
            continue
        return
    definitions = torch.library.Library(_NAME, "DEF")
    for operator in _OPERATORS:
        definitions.define(operator)
    _kept.append(definitions)
