"""Makes or finds the TFLite file of a model; runs as a process of its own.

`python -m comparative_benchmark.tflite.export REQUEST.json FD` writes lines of JSON to the file
descriptor: `{"phase": name}` (null: none) as it goes along, `{"probing": true}` where it may end by
a signal, at last `{"answer": {...}}` or `{"error": {"kind": ..., "message": ...}}`.
"""

import contextlib
import hashlib
import importlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.tflite import BACKEND
from openxla.benchmark.def_types import TensorSpec
from openxla.benchmark.models.checkpoints import CheckpointError
from openxla.benchmark.models.preprocessing import numpy_dtype
from openxla.benchmark.models.tflite import conversion
from openxla.benchmark.models.tflite.tflite_model import TfLiteModel

Say = Callable[[Mapping[str, Any]], None]


def answer(request: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Returns where the file is, what it is, and what made it.

    Args:
      request: `module_path` and `parameters` of the model, name of the `compiler` and whether it
        uses `xnnpack`, shape and dtype of each of the `inputs`, and the `directory` that a new file
        goes to.
      say: is told of each phase.

    Raises:
      UnsupportedError: the compiler is not for such a model; the message says which one is.
      NotConvertibleError: TFLite can not hold the model.
      CheckpointError: a published file is not here.
    """

    @contextlib.contextmanager
    def phase(name: str) -> Iterator[None]:
        say({"phase": name})
        yield
        say({"phase": None})

    with phase("import"):
        module = importlib.import_module(request["module_path"])
    with phase("load"):
        model = module.create_model(**request["parameters"])
    if isinstance(model, TfLiteModel):
        return _given(model, request["compiler"], phase)
    with phase("import"):
        importlib.import_module("tensorflow")
    specs = [TensorSpec(**item) for item in request["inputs"]]
    precision = BACKEND.compiler(request["compiler"]).precision or "fp32"
    notes: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=request["directory"]) as scratch:
        content = conversion.convert(
            model, specs, precision, Path(scratch), phase=phase, notes=notes
        )
    path = Path(request["directory"]) / "model.tflite"
    path.write_bytes(content)
    if precision == "int8":
        _probe(path, specs, say, xnnpack=request["xnnpack"])
    return {
        "path": str(path),
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_bytes": len(content),
        "precision": precision,
        "origin": "converted",
        "versions": conversion.versions(),
        "notes": notes,
    }


def _probe(path: Path, inputs: Sequence[TensorSpec], say: Say, *, xnnpack: bool) -> None:
    """Loads and runs a file once, on zeros: some int8 files end the process that does.

    Raises:
      UnsupportedError: LiteRT refuses the file.
    """
    from openxla.benchmark.models.tflite.program import Program

    say({"probing": True})
    try:
        program = Program(path, threads=1, xnnpack=xnnpack)
        program.set_inputs([np.zeros(spec.shape, numpy_dtype(spec.dtype)) for spec in inputs])
        program.invoke()
    except RuntimeError as error:
        hint = "; take int8+no-xnnpack" if xnnpack else ""
        raise UnsupportedError(
            f"LiteRT refuses the int8 file of this model: {error}{hint}"
        ) from error
    say({"probing": False})


def _given(model: TfLiteModel, compiler: str, phase: conversion.PhaseTimer) -> dict[str, Any]:
    """Returns the file of a case that is one, in the precision that it has."""
    precision = model.uri.precision
    fitting = next(
        info.name
        for info in BACKEND.compilers
        if info.name != "native" and (info.precision or "fp32") == precision
    )
    if compiler not in ("native", fitting):
        raise UnsupportedError(
            f"the case is a file in {precision}, and no compiler can change that: take "
            f"--backend tflite or tflite:{fitting}"
        )
    with phase("prepare"):
        file = model.file()
    return {
        "path": str(file.path),
        "sha256": file.sha256,
        "size_bytes": file.size_bytes,
        "precision": precision,
        "origin": file.origin,
        "versions": file.notes.get("converter", {}),
        "notes": {name: value for name, value in file.notes.items() if name != "converter"},
    }


def main(request_path: str, descriptor: str) -> int:
    """Answers a request; returns 0, or 1 where the answer is an error."""
    with os.fdopen(int(descriptor), "w", encoding="utf-8", buffering=1) as channel:

        def say(message: Mapping[str, Any]) -> None:
            channel.write(json.dumps(dict(message)) + "\n")

        try:
            request = json.loads(Path(request_path).read_text(encoding="utf-8"))
            say({"answer": answer(request, say)})
        except Exception as error:
            traceback.print_exc()
            unsupported = (UnsupportedError, conversion.NotConvertibleError, CheckpointError)
            kind = "unsupported" if isinstance(error, unsupported) else type(error).__name__
            say({"error": {"kind": kind, "message": str(error)[:4000]}})
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
