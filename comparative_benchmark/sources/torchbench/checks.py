"""Checks of one folder in a separate worker, which may crash: the guide's tests, batch sizes.

The guide lists what "our test scripts will test"; the command's side is
`maintenance.onboarding.model_check`.
"""

import gc
import hashlib
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.backends.frameworks.torch_modules import to_numpy
from comparative_benchmark.sources.torchbench import folders
from comparative_benchmark.sources.torchbench.loading import LoadedFolder, Request
from comparative_benchmark.sources.torchbench.model import create_model
from comparative_benchmark.sources.torchbench.running import Running, same

# Scripted code may add in another order; the guide requires the same output.
_JIT_TOLERANCE = 1e-4
# Memory that allocators and lazily loaded libraries may keep on a device.
_DEVICE_SLACK_BYTES = 1 << 20


def probe(folder: str, test: str, batch_size: int, packages: str | None = None) -> dict[str, Any]:
    """Runs a folder's test once as a trial and its truth do; returns the facts about its inputs.

    Raises:
      UnsupportedError: the folder does not take this batch size.
    """
    model = create_model(folder=folder, test=test, batch_size=batch_size, packages=packages)
    inputs = model.preprocess(model.generate_default_inputs())
    model.judged_by(inputs)
    model.outputs_of(model.timed(*model.reside(inputs)))
    return {"elements": sum(value.size for value in inputs)}


def check(folder: str, test: str, packages: str | None = None) -> dict[str, Any]:
    """Returns the results: `states` by check, each with a detail, and `outputs`, a digest.

    Raises:
      UnsupportedError: the folder does not implement the test here.
    """
    path = Path(folder)
    before = folders.digest(path)
    request = Request(folder=path, test=test, packages=Path(packages) if packages else None)
    loaded = LoadedFolder(request)
    states: dict[str, tuple[str, str]] = {}
    running = Running(loaded)
    outputs = _outputs(running)
    states["runs"] = ("ok", f"{loaded.protocol} protocol, run from another directory")
    states["repeatable"] = _repeatable(loaded, outputs)
    states["inputs"] = _inputs(running)
    states["signal"] = _signal(outputs)
    states["jit"] = _jit(request, loaded, running)
    del running
    states["memory"] = _memory(lambda: Running(loaded), loaded.device)
    after = folders.digest(path)
    states["folder"] = (
        ("ok", "") if after == before else ("failed", "a run modified files in the folder")
    )
    return {"states": states, "outputs": _digest(outputs)}


def _outputs(running: Running) -> list[Any]:
    running.watch()
    with running.refusing():
        return [to_numpy(value).copy() for value in running.outputs_of(running.run())]


def _repeatable(loaded: LoadedFolder, outputs: list[Any]) -> tuple[str, str]:
    again = _outputs(Running(loaded))
    if _digest(again) == _digest(outputs):
        return "ok", ""
    return "failed", "a second instance with the same seed returns a different output"


def _inputs(running: Running) -> tuple[str, str]:
    if not running.inputs:
        return "not_applicable", "get_module() returns no tensors"
    before = [value.clone() for value in running.inputs]
    running.run()
    if same(before, running.inputs):
        return "ok", ""
    return "failed", "a run modifies the inputs that get_module() returns"


def _signal(outputs: list[Any]) -> tuple[str, str]:
    for place, value in enumerate(outputs):
        numbers = np.asarray(value, dtype=np.float64)
        if not np.isfinite(numbers).all():
            return "failed", f"output {place} contains NaN or infinity"
        if numbers.size == 0 or (numbers.size > 1 and np.ptp(numbers) == 0):
            return "failed", f"output {place} is constant, so agreement proves nothing"
    return "ok", ""


def _jit(request: Request, loaded: LoadedFolder, eager: Running) -> tuple[str, str]:
    if loaded.is_current or request.test == "train":
        return "not_applicable", "only the 2021 protocol supports scripted inference"
    if eager.why_not_function:
        return "not_applicable", eager.why_not_function
    scripted = loaded.scripted()
    try:
        running = Running(scripted)
    except UnsupportedError as error:
        return "not_applicable", str(error)
    # What `eval` does with the module's output is not part of it.
    values, outputs = (
        [to_numpy(value) for value in each.function(*each.inputs)] for each in (running, eager)
    )
    for place, (one, expected) in enumerate(zip(values, outputs, strict=True)):
        if not np.allclose(one, expected, rtol=_JIT_TOLERANCE, atol=_JIT_TOLERANCE):
            return "failed", f"output {place} of the scripted module differs from eager mode"
    return "ok", ""


def _memory(make: Callable[[], Running], device: str) -> tuple[str, str]:
    held = torch.cuda.memory_allocated() if device == "cuda" else 0
    running = make()
    running.run()
    objects = [weakref.ref(item) for item in (running.made, running.module) if item is not None]
    del running
    gc.collect()
    if any(reference() is not None for reference in objects):
        return "failed", "the object or its module outlives the last reference to the object"
    if device == "cuda":
        left = torch.cuda.memory_allocated() - held
        if left > _DEVICE_SLACK_BYTES:
            return "failed", f"{left / 2**20:.1f} MiB remain allocated on the GPU"
    return "ok", ""


def _digest(outputs: list[Any]) -> str:
    summed = hashlib.sha256()
    for value in outputs:
        summed.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    return summed.hexdigest()
