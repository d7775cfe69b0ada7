"""The export process: makes the model in its framework and leaves a program without one.

`python -m comparative_benchmark.xla_hlo.export DIRECTORY DESCRIPTOR` reads the request in the
directory, writes the program there, and tells on the descriptor what it does, in JSON lines:
`{"phase": name}` at the start of a phase, `{"ms": time}` at its end, `{"error": ...}` if it fails.
"""

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from comparative_benchmark.backends.api import Array, UnsupportedError
from comparative_benchmark.xla_hlo.exported_program import (
    ExportedProgram,
    ExportRequest,
    InputType,
    check_parameters,
)
from comparative_benchmark.xla_hlo.hlo_module import HloModule


class Exporter(Protocol):
    """What exports models of one framework.

    Attributes:
      packages: that it and the models are made with.
    """

    packages: tuple[str, ...]

    def trace(self) -> None:
        """Traces the model."""

    def lower(self, form: str) -> bytes:
        """Returns the program in one of the forms."""

    def module(self) -> HloModule:
        """Returns the program as a module, whatever its form."""

    def arguments(self) -> list[int | Array]:
        """Returns what each parameter takes: a weight, or the number of an input."""


class Channel:
    """Tells the worker what happens."""

    def __init__(self, descriptor: int) -> None:
        self._stream = os.fdopen(descriptor, "w", encoding="utf-8")

    def send(self, **message: Any) -> None:
        """Sends one message."""
        print(json.dumps(message), file=self._stream, flush=True)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Tells start and end of a phase; one that fails has no end."""
        self.send(phase=name)
        start = time.perf_counter_ns()
        yield
        self.send(ms=(time.perf_counter_ns() - start) / 1e6)


def main(arguments: list[str]) -> int:
    """Exports; returns the exit code."""
    directory, channel = Path(arguments[0]), Channel(int(arguments[1]))
    try:
        _export(ExportRequest.read(directory), directory, channel)
    except Exception as error:
        text = "".join(traceback.format_exception(error))[-20000:]
        message = str(error) if isinstance(error, UnsupportedError) else _named(error)
        channel.send(error={"kind": type(error).__name__, "message": message, "traceback": text})
        return 1
    return 0


def _export(request: ExportRequest, directory: Path, channel: Channel) -> None:
    with channel.phase("load"):
        module = importlib.import_module(request.definition.module_path)
        model = module.create_model(**request.definition.parameters)
        exporter = _exporter(model, request)
    with channel.phase("trace"):
        exporter.trace()
    with channel.phase("lower"):
        content = exporter.lower(request.form)
    with channel.phase("load"):
        arguments = exporter.arguments()
        program = ExportedProgram(
            directory=directory,
            form=request.form,
            inputs=[item if isinstance(item, int) else None for item in arguments],
            versions=_versions(exporter.packages),
        )
        program.path.write_bytes(content)
        program.write_weights([item for item in arguments if not isinstance(item, int)])
        program.write()
    check_parameters(
        exporter.module().parameters(),
        [
            request.inputs[item] if isinstance(item, int) else InputType.of(item)
            for item in arguments
        ],
    )


def _exporter(model: Any, request: ExportRequest) -> Exporter:
    """Returns what exports the model, by the framework that its module has imported.

    Libraries of each framework may have imported the other: JAX models are known by their `apply`.
    """
    if "tensorflow" in sys.modules and not hasattr(model, "apply"):
        from comparative_benchmark.xla_hlo.from_tensorflow import TensorFlowExporter

        return TensorFlowExporter(model, request.inputs, request.platform)
    if "jax" in sys.modules:
        from comparative_benchmark.xla_hlo.from_jax import JaxExporter

        return JaxExporter(model, request.inputs, request.platform)
    raise UnsupportedError(
        f"nothing exports {request.definition.module_path} to XLA: it is no model in JAX or "
        "TensorFlow"
    )


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
