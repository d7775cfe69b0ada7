"""The worker's side: makes a model and exports it, as its backend would for a measurement."""

import contextlib
import importlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.backends.api import BackendContext, ModelDefinition
from comparative_benchmark.repro import exporters
from comparative_benchmark.repro.exported import Exported, ExportTask
from openxla.benchmark.artifacts import arrays
from openxla.benchmark.def_types import DeviceSpec


def export(
    *,
    backend: str,
    context: Mapping[str, Any],
    definition: Mapping[str, Any],
    inputs: Sequence[str],
    directory: str,
) -> dict[str, Any]:
    """Exports a program to a directory.

    Args:
      backend: whose program it is.
      context: `compiler`, `options`, `device`, `threads` and `work_dir` of a `BackendContext`.
      definition: `module_path` and `parameters` of the model.
      inputs: files with its inputs.
      directory: the reproducer's; exists.

    Returns:
      `exported`, an `Exported` as JSON; `versions` of the packages that its script needs.

    Raises:
      UnsupportedError: the backend takes no such model, or its exporter can not do it.
    """
    task = ExportTask(
        context=BackendContext(
            compiler=context["compiler"],
            options=tuple(context["options"]),
            device=DeviceSpec(**context["device"]),
            threads=context["threads"],
            work_dir=Path(context["work_dir"]),
            phase=_untimed,
        ),
        definition=ModelDefinition(**definition),
        inputs=tuple(arrays.load(Path(path)) for path in inputs),
        directory=Path(directory),
    )
    module = importlib.import_module(f"{exporters.__name__}.{backend}")
    exported: Exported = module.export(task)
    return {"exported": attrs.asdict(exported), "versions": _versions(exported.packages)}


@contextlib.contextmanager
def _untimed(_: str) -> Iterator[None]:
    yield


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
