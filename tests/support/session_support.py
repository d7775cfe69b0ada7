"""Prepares a session up to the start of measurement."""

from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.backends.api import BackendInfo
from comparative_benchmark.engine.messages import Compiled, Loaded, Prepared, paths_of
from openxla.benchmark.def_types import BenchmarkCase
from openxla.benchmark.devices import ALL_DEVICES


def bring_up(
    session: Any,
    case: BenchmarkCase,
    backend: BackendInfo,
    directory: Path,
    *,
    reference: str,
    compiler: str,
    implementation: str | None = None,
    threads: int = 1,
) -> None:
    """Makes inputs under the directory, loads the case, compiles it and runs it once."""
    model = case.model
    common = {
        "module_path": model.model_impl.module_path,
        "parameters": dict(model.model_parameters),
    }
    artifacts, work_dir = directory / "artifacts", directory / "work"
    work_dir.mkdir(parents=True, exist_ok=True)
    prepared = session.call(Prepared, reference=reference, directory=str(artifacts), **common)
    [device] = [device for device in ALL_DEVICES if device.name == "host-cpu"]
    session.call(
        Loaded,
        implementation=implementation or backend.implementation,
        context={
            "compiler": compiler,
            "options": [],
            "device": {**attrs.asdict(device), "accelerator_attributes": {}},
            "threads": threads,
            "work_dir": str(work_dir),
        },
        inputs=list(map(str, paths_of(prepared.files.inputs, artifacts / "inputs"))),
        **common,
    )
    session.call(Compiled)
