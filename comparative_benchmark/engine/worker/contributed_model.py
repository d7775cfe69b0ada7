"""Checks on the code and values of a model, which may come from any author.

The required and optional members of a model are defined in
`openxla.benchmark.models.model_interfaces`.
"""

import contextlib
import importlib.util
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from comparative_benchmark.analysis.machine import worker_settings
from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.missing_packages import (
    chain,
    importer_of,
    lack_of,
    requirements_beside,
)
from openxla.benchmark.models.in_tree import IN_TREE, Tree


def checked_array(value: Any, source: str) -> Array:
    """Returns the value as a numeric array, or raises a TypeError that names its source."""
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind in "USmM":
        raise TypeError(f"{source} returned a {type(value).__name__}, expected an array of numbers")
    return array


def check_arity(model: Any, inputs: Sequence[Any]) -> None:
    """Raises TypeError if `forward` cannot take that number of inputs."""
    if error := mismatch(model.forward, inputs):
        raise TypeError(
            f"forward does not accept the inputs from preprocess ({len(inputs)} given): {error}"
        )


def mismatch(function: Callable[..., Any], arguments: Sequence[Any]) -> str | None:
    """Returns why a function cannot be called with these arguments; None if it can.

    Also None if the signature is unknown, because some callables hide it.
    """
    signature: inspect.Signature | None = None
    with contextlib.suppress(ValueError, TypeError):
        signature = inspect.signature(function)
    if signature is None:
        return None
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return f"{function.__name__}{signature}: {error}"
    return None


@attrs.frozen(kw_only=True)
class _Code:
    """Location of a model of a foreign suite.

    Attributes:
      package: package of its modules.
      folder: folder of the model's module.
      top: common folder of all its modules.
    """

    package: str
    folder: Path
    top: Path


def why_unsupported(
    error: BaseException, module_path: str, parameters: Mapping[str, Any]
) -> str | None:
    """Returns a missing requirement of a foreign suite's model; None if all are met.

    Such a model is not at fault if a package is missing or has another version, or if it needs the
    network. The suite's own models and single user models must run, so this does not apply to them.
    """
    code = _code_of(module_path, parameters)
    frames = [frame for one in chain(error, implicit=False) for frame in _files(one)]
    if code is None or not any(file.is_relative_to(code.top) for file in frames):
        return None
    for one in chain(error, implicit=False):
        lack = lack_of(one)
        if lack is not None and lack.package != code.package:
            listed = requirements_beside(code.folder, code.top, lack)
            return lack.sentence(
                requirements=str(listed.relative_to(code.top.parent)) if listed else None,
                importer=importer_of(one, code.package) or "the model",
                remedy=lack.remedy,
            )
        named = any(kind.__name__ in worker_settings.OFFLINE_ERRORS for kind in type(one).__mro__)
        if named or worker_settings.is_offline_error(str(one)):
            line = (str(one).strip().splitlines() or [type(one).__name__])[0][:300]
            return f"network: the model needs a connection ({line})"
    return None


def _code_of(module_path: str, parameters: Mapping[str, Any]) -> _Code | None:
    if module_path == IN_TREE:
        tree = Tree(folder=Path(parameters["tree"]), module=parameters["tree_module"])
        return _Code(package="openxla", folder=tree.file.parent, top=tree.folder)
    package = module_path.partition(".")[0]
    if package in ("", "openxla", "comparative_benchmark"):
        return None
    spec = None
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(package)
    if spec is None or not spec.origin:
        return None
    top = Path(spec.origin).parent
    return _Code(package=package, folder=top.joinpath(*module_path.split(".")[1:-1]), top=top)


def _files(error: BaseException) -> list[Path]:
    return [Path(f.f_code.co_filename) for f, _ in traceback.walk_tb(error.__traceback__)]
