"""Results files for tests: those that the suite once wrote, and others made from them."""

import functools
import hashlib
import json
import lzma
import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from comparative_benchmark.results.record import Document
from comparative_benchmark.results.results_file import decode_document

FOLDER = Path(__file__).parents[1] / "data" / "results"
# Oldest first.
AGES = (
    *("first-fixed", "races-fixed", "workload-cost-fixed", "workload-cost-race"),
    *("profiles-fixed", "compile-processes-fixed", "gpu-check-fixed", "gpu-check-race"),
)
LATEST = "gpu-check-race"


@functools.cache
def content_of(age: str) -> bytes:
    """Returns a file of that age."""
    return lzma.decompress((FOLDER / f"{age}.json.xz").read_bytes())


def plain_document(age: str = LATEST) -> dict[str, Any]:
    """Returns a file of that age as dictionaries and lists, to be changed at will."""
    return json.loads(content_of(age))


def write(path: Path, age: str = LATEST) -> Path:
    """Writes a file of that age."""
    path.write_bytes(content_of(age))
    return path


def decoded(plain: dict[str, Any]) -> Document:
    """Returns dictionaries and lists as a document, by way of its JSON."""
    return decode_document(json.dumps(plain).encode(), "a test's document")


def completed(sparse: Mapping[str, Any]) -> Document:
    """Returns a document whose relevant fields a test gives; the rest is usual.

    Args:
      sparse: `runs` and `benchmarks`, which are merged into the latest file's. Digests
        of workloads may be any text. Runs that records name and `runs` lacks are added.
    """
    base = plain_document()
    [usual] = base["runs"][:1]
    records = [completed_record(record) for record in sparse.get("benchmarks", [])]
    runs = {run["run_id"]: merged(usual, run) for run in sparse.get("runs", [])}
    for record in records:
        runs.setdefault(record["run_id"], usual | {"run_id": record["run_id"]})
    version = sparse.get("schema_version", base["schema_version"])
    whole = {"schema_version": version, "runs": list(runs.values()) or [usual]}
    return decoded(base | whole | {"benchmarks": records})


def completed_record(sparse: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a record whose relevant fields a test gives."""
    usual = plain_document()["benchmarks"][0]
    found = merged(usual, {key: value for key, value in sparse.items() if key != "metrics"})
    if "data_type" in sparse.get("definition", {}):
        found["definition"]["precision"] = sparse["definition"].get("precision")
    digest = found["definition"]["workload"]["digest"]
    if not re.fullmatch("[0-9a-f]{64}", digest):
        found["definition"]["workload"]["digest"] = hashlib.sha256(digest.encode()).hexdigest()
    [[_, values]] = usual["metrics"].items()
    [[level, own]] = sparse.get("metrics", {"framework_level": {}}).items()
    for name in ("race", "compile", "program", "contention", "workload_cost"):
        # Its race would pair more records than the test, and its program would count as unchanged.
        if name in own or name in ("race", "program"):
            values.pop(name, None)
    values = merged({"program": {}, "phases": {}, **values}, own)
    compile_only = values.get("stop_reason") == "compile_only"
    if found["status"] != "ok" or compile_only:
        values = {k: v for k, v in values.items() if k in own or not _is_of_samples(k)}
    elif "processes" in own or "latencies_ms" in own:
        values = values | _of_samples(own)
        if "processes" not in own:
            del values["processes"]
    if found["status"] != "ok":
        found = {"phase": "compile", "reason": "a reason", "traceback": None} | found
        values["error"] = f"{found['status']} in {found['phase']}: {found['reason']}"
    return found | {"metrics": {level: values}}


def merged(usual: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Returns two mappings merged recursively; the second one has precedence."""
    found = dict(usual)
    for name, value in own.items():
        both = isinstance(value, dict) and isinstance(found.get(name), dict)
        found[name] = merged(found[name], value) if both and name != "versions" else value
    return found


def _of_samples(own: Mapping[str, Any]) -> dict[str, Any]:
    processes = own.get("processes", [])
    blocks = [block for process in processes for block in process["blocks"]]
    samples = [value for block in blocks for value in block["latencies_ms"]]
    samples = samples or own.get("latencies_ms", [])
    found = {
        "latencies_ms": samples,
        "benchmark_iterations": len(samples),
        "median_latency_ms": statistics.median(samples) if samples else None,
    }
    return {name: value for name, value in found.items() if name not in own}


def _is_of_samples(name: str) -> bool:
    return "latenc" in name or name in (
        *("processes", "dispatch_ms", "warmup_iterations", "benchmark_iterations"),
        *("cpu_wall_ratio", "contention", "outliers"),
    )


def metrics(seed=0, *, scale=1.0, processes=6, rounds=10, race=None, drift=None):
    random = np.random.default_rng(seed)
    made = []
    for _ in range(processes):
        blocks = []
        for number in range(rounds):
            load = drift[number] if drift is not None else 1.0
            values = scale * load * (1 + 0.003 * random.standard_normal(5))
            blocks.append({"round": number, "latencies_ms": list(values), "contended": False})
        made.append({"blocks": blocks})
    found = {"processes": made, "compile_time_ms": 100.0 * scale, "host_memory_peak_mb": 50.0}
    return {**found, "race": {"id": race}} if race else found


def record(digest="w1", competitor="jax_xla:xla", *, status="ok", level=None, **changes):
    backend, compiler = competitor.split(":")
    definition = {
        "benchmark_name": f"models/{digest.upper()}",
        "framework": "ModelFrameworkType.JAX",
        "data_type": "fp32",
        "batch_size": 1,
        "backend": backend,
        "compiler": compiler,
        "device": "host-cpu",
        "workload": {"digest": digest, "label": f"label-{digest}", "architecture": digest},
    }
    workload = changes.pop("workload", {})
    definition["workload"] = {**definition["workload"], **workload}
    return {
        "run_id": "r",
        "definition": {**definition, **changes},
        "status": status,
        "metrics": {"framework_level": level if level is not None else metrics()},
        **({} if status == "ok" else {"phase": "compile", "reason": "no memory"}),
    }


def latencies(found):
    """Returns the names of the latencies that a detector reports."""
    return [item for item in found.details if item.endswith("metric=latencies")]
