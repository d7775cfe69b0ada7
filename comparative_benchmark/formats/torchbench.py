"""TorchBench userbenchmark metrics: `{"name", "environ", "metrics": {key: number or status}}`.

A key is `model=M, test=eval, device=D, bs=B, extra_args=[...], metric=NAME`, as its `test_bench`
writes it; the model of one of its folders is the folder's name. Where there is no number the
status stands in its place, as its readers expect.
"""

import re
import statistics
from collections.abc import Sequence
from typing import Any

from comparative_benchmark.formats.exported import (
    CARRIER,
    Exported,
    carried,
    json_file,
    one_run,
    remarks_on,
    unique,
)
from comparative_benchmark.history.portable import OK, PortableResult
from openxla.benchmark.testdata import INPUT_DATA_MODEL_DEFAULT

NAME = "comparative_suite"
# Cases that are TorchBench's own folders have it, see `torchbench.cases`; their test is a tag, too.
_FOLDER_TAG = "torchbench"
METRICS_VERSION = "v0.1"
# What TorchBench's own helper writes where it does not know.
UNKNOWN = "<unknown>"
LATENCY = "latencies"
NOT_IMPLEMENTED = "not_implemented"


def export(results: Sequence[PortableResult]) -> Exported:
    """Returns the metrics file of one run.

    Raises:
      FormatError: there are several runs, or results that one key would stand for.
    """
    one_run(results, "a TorchBench metrics file")
    return Exported(
        files={"": json_file(document_of(results, NAME))},
        remarks=remarks_on(
            results,
            f"samples, intervals, versions and exact statuses are in {CARRIER!r}: TorchBench has "
            "no fields for them",
        ),
    )


def document_of(results: Sequence[PortableResult], name: str) -> dict[str, Any]:
    """Returns the metrics document of a userbenchmark of that name.

    Raises:
      FormatError: two results have one key.
    """
    unique((_base(result) for result in results), "TorchBench's metrics")
    metrics = {key: value for result in results for key, value in metrics_of(result).items()}
    return {
        "name": name,
        "environ": _environ(results),
        "metrics": metrics,
        CARRIER: carried(results),
    }


def matches(document: Any) -> bool:
    """Tells whether a JSON document looks like a metrics file."""
    return isinstance(document, dict) and {"name", "environ", "metrics"} <= set(document)


def metric_key(result: PortableResult, metric: str) -> str:
    """Returns the key of a metric of a result."""
    return f"{_base(result)}, metric={metric}"


def _base(result: PortableResult) -> str:
    arguments = [f"--backend={result.backend}", f"--compiler={result.compiler}"]
    if result.environment:
        arguments.append(f"--env={result.environment}")
    if result.input_data not in (None, INPUT_DATA_MODEL_DEFAULT.name):
        arguments.append(f"--input={result.input_data}")
    model = result.model or result.case
    is_folder = _FOLDER_TAG in result.tags
    trains = "train" in result.tags if is_folder else "_TRAIN_" in model
    test = "train" if trains else "eval"
    if is_folder:
        model = re.sub(rf"_{test.upper()}_PT(_BATCH\d+)?$", "", model)
    return (
        f"model={model}, test={test}, device={result.device}, "
        f"bs={result.batch_size}, extra_args={arguments}"
    )


def metrics_of(result: PortableResult) -> dict[str, float | str]:
    """Returns the metrics of a result by their keys; of one that is not ok its status alone."""
    if result.status != OK:
        # Neither speed nor size of a wrong program counts.
        status = NOT_IMPLEMENTED if result.status == "unsupported" else result.status
        return {metric_key(result, LATENCY): status}
    found = {
        LATENCY: result.latency_ms,
        "compile_time_ms": _median(result.compile_ms),
        "warm_compile_time_ms": _median(result.warm_compile_ms),
        # In GB, as TorchBench's numbers are.
        "cpu_peak_mem": _gigabytes(result.host_memory_peak_mb),
        "gpu_peak_mem": _gigabytes(result.device_memory_peak_mb),
        "tokens_per_s": result.tokens_per_s,
        "relative_rmse": result.relative_rmse,
        **{name: value for name, value in result.metrics.items() if name != LATENCY},
    }
    return {metric_key(result, name): v for name, v in found.items() if v is not None}


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _gigabytes(megabytes: float | None) -> float | None:
    return None if megabytes is None else megabytes / 1e3


def _environ(results: Sequence[PortableResult]) -> dict[str, str]:
    versions = {
        name: sorted({result.versions[name] for result in results if name in result.versions})
        for name in sorted({name for result in results for name in result.versions})
    }
    told = {
        "suite_git_revision": {result.git_revision for result in results},
        "run_id": {result.run_id for result in results},
        "timestamp": {result.timestamp for result in results},
        "device": {result.host.get("cpu_model") for result in results},
    }
    return {
        # First, so that no package takes the place of what readers look up.
        **{f"{name}_version": ", ".join(found) for name, found in versions.items()},
        "metrics_version": METRICS_VERSION,
        "pytorch_git_version": UNKNOWN,
        "pytorch_version": ", ".join(versions.get("torch", [UNKNOWN])),
        **{
            name: ", ".join(sorted(map(str, values - {None})))
            for name, values in told.items()
            if values - {None}
        },
    }
