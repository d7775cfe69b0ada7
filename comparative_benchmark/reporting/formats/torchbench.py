"""TorchBench userbenchmark metrics: `{"name", "environ", "metrics": {key: number or status}}`.

A key is `model=M, test=eval, device=D, bs=B, extra_args=[...], metric=NAME`, as written by its
`test_bench`; a model from one of its folders has the folder's name. Without a number, the
value is the status, as its readers expect.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import Raw

from comparative_benchmark.reporting.formats.interface import (
    CARRIER,
    Exported,
    Part,
    Source,
    carried,
    json_file,
    one_run,
    read_carrier,
    remarks_on,
    unique,
)
from comparative_benchmark.reporting.history.rows import (
    OK,
    Contents,
    FormatError,
    PortableResult,
    count_of,
    median,
    portable_result,
    zoned_time,
)
from openxla.benchmark.testdata import INPUT_DATA_MODEL_DEFAULT

NAME = "comparative_suite"
# The tag of cases of TorchBench's folders (see `sources.torchbench.folders.cases`).
_FOLDER_TAG = "torchbench"
METRICS_VERSION = "v0.1"
# TorchBench's own helper writes this for unknown values.
UNKNOWN = "<unknown>"
LATENCY = "latencies"
NOT_IMPLEMENTED = "not_implemented"


def export(results: Sequence[PortableResult]) -> Exported:
    """Returns the metrics file of one run.

    Raises:
      FormatError: there are several runs, or results with the same key.
    """
    one_run(results, "a TorchBench metrics file")
    return Exported(
        files={"": json_file(document_of(results, NAME))},
        remarks=remarks_on(
            results,
            f"samples, intervals, versions and exact statuses are in {CARRIER!r}, because "
            "TorchBench has no fields for them",
        ),
    )


def document_of(results: Sequence[PortableResult], name: str) -> dict[str, Any]:
    """Returns the metrics document of a userbenchmark of that name.

    Raises:
      FormatError: two results have the same key.
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
    """Returns whether a JSON document looks like a metrics file."""
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
    """Returns the metrics of a result by key; only the status if it is not ok."""
    if result.status != OK:
        # Neither speed nor size of a wrong program counts.
        status = NOT_IMPLEMENTED if result.status == "unsupported" else result.status
        return {metric_key(result, LATENCY): status}
    metrics = {
        LATENCY: result.latency_ms,
        "compile_time_ms": median(result.compile_ms),
        "warm_compile_time_ms": median(result.warm_compile_ms),
        # In GB, like TorchBench's numbers.
        "cpu_peak_mem": _gigabytes(result.host_memory_peak_mb),
        "gpu_peak_mem": _gigabytes(result.device_memory_peak_mb),
        "tokens_per_s": result.tokens_per_s,
        "relative_rmse": result.relative_rmse,
        **{name: value for name, value in result.metrics.items() if name != LATENCY},
    }
    return {metric_key(result, name): v for name, v in metrics.items() if v is not None}


def _gigabytes(megabytes: float | None) -> float | None:
    return None if megabytes is None else megabytes / 1e3


def _environ(results: Sequence[PortableResult]) -> dict[str, str]:
    versions = {
        name: sorted({result.versions[name] for result in results if name in result.versions})
        for name in sorted({name for result in results for name in result.versions})
    }
    properties = {
        "suite_git_revision": {result.git_revision for result in results},
        "run_id": {result.run_id for result in results},
        "timestamp": {result.timestamp for result in results},
        "device": {result.host.get("cpu_model") for result in results},
    }
    return {
        # First, so that no package overrides the keys that readers need.
        **{f"{name}_version": ", ".join(texts) for name, texts in versions.items()},
        "metrics_version": METRICS_VERSION,
        "pytorch_git_version": UNKNOWN,
        "pytorch_version": ", ".join(versions.get("torch", [UNKNOWN])),
        **{
            name: ", ".join(sorted(map(str, values - {None})))
            for name, values in properties.items()
            if values - {None}
        },
    }


_SKIPPED = ("skip", "skip_by_dryrun")
_PASSED = ("pass", "pass_due_to_skip")
_TEST_BENCH = re.compile(
    r"model=(?P<model>.*), test=(?P<test>.*), device=(?P<device>.*), bs=(?P<bs>.*), "
    r"extra_args=(?P<args>.*), metric=(?P<metric>[^,]*)"
)
_NIGHTLY = re.compile(
    r"test_(?P<test>eval|train)\[(?P<model>.+)-(?P<device>\w+)-(?P<args>\w+)\]_"
    r"(?P<metric>latency|cmem|gmem)"
)
_CPU = re.compile(r"(?P<model>.+)-(?P<test>eval|train)_(?P<metric>latency|throughput|cmem)")
_FILE_TIME = re.compile(r"metrics-(\d{14})\.json")


class _File(msgspec.Struct):
    name: str
    environ: dict[str, Any]
    metrics: dict[str, Raw]
    common_benchmark_suite: Raw = Raw()


def read(source: Source) -> Contents:
    """Returns the results of a metrics file; if it carries exact results, those.

    Raises:
      FormatError: the file is not a metrics file.
    """
    document = source.decoded(_File, "a TorchBench metrics file")
    if carrier := document.common_benchmark_suite:
        metrics = source.decoded(dict[str, Any])["metrics"]
        return read_carrier(source.part(carrier), lambda results: _faults(results, metrics))
    return _read_foreign(source, document)


def _faults(results: Sequence[PortableResult], metrics: Mapping[str, Any]) -> list[str | None]:
    faults = []
    for result in results:
        wrong = [key for key, value in metrics_of(result).items() if metrics.get(key) != value]
        faults.append(
            f"metric {wrong[0]!r} is {metrics.get(wrong[0])!r} in the metrics, but different in "
            f"{CARRIER}"
            if wrong
            else None
        )
    return faults


def _read_foreign(source: Source, document: _File) -> Contents:
    groups: dict[tuple[tuple[str, str], ...], dict[str, Part]] = {}
    environ = document.environ
    torch = environ.get("pytorch_version")
    for key, raw in document.metrics.items():
        # Search for the key, because the value may be a digit that occurs anywhere.
        name = source.part(Raw(msgspec.json.encode(key)))
        part = source.part(raw, name.offset + len(name.content))
        parts = _parts(key)
        metric = parts.pop("metric")
        groups.setdefault(tuple(sorted(parts.items())), {})[metric] = part
    common = {
        "framework": "pytorch",
        "versions": {"torch": torch} if isinstance(torch, str) else {},
        "timestamp": _timestamp(source.name),
        "host": {"cpu_model": environ["device"]} if isinstance(environ.get("device"), str) else {},
    }
    results, refused, skipped = [], [], 0
    for group, values in groups.items():
        try:
            result = _foreign(document.name, dict(group), values, environ, common)
        except FormatError as error:
            refused.append(str(error))
            continue
        if result is None:
            skipped += 1
        else:
            results.append(result)
    return Contents(tuple(results), tuple(refused), skipped)


def _parts(key: str) -> dict[str, str]:
    for pattern in (_TEST_BENCH, _NIGHTLY, _CPU):
        if match := pattern.fullmatch(key):
            return match.groupdict()
    return {"key": key, "metric": key}


def _foreign(
    name: str,
    parts: Mapping[str, str],
    values: Mapping[str, Part],
    environ: Mapping[str, Any],
    common: Mapping[str, Any],
) -> PortableResult | None:
    """Returns the result of one configuration; None if it was skipped."""
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    for metric, part in values.items():
        try:
            value: float | str = part.decoded(float | str)  # type: ignore[arg-type]  # a union
        except FormatError as error:
            raise FormatError(f"{part}: {metric}: {error}") from error
        if isinstance(value, str):
            texts[metric] = value
        else:
            numbers[metric] = value
    if not numbers and texts and all(text in _SKIPPED for text in texts.values()):
        return None
    latency = next((numbers.pop(n) for n in (LATENCY, "latency") if n in numbers), None)
    failure = next((t for t in texts.values() if t not in (*_SKIPPED, *_PASSED)), None)
    if failure is not None:
        # A configuration that failed in one metric has no speed in another.
        if latency is not None:
            numbers[LATENCY] = latency
        latency = None
    fields = {
        "case": f"{name}/{parts.get('model') or parts.get('key')}"
        + ("/train" if parts.get("test") == "train" else ""),
        "model": parts.get("model"),
        "device": parts.get("device"),
        "batch_size": count_of(parts.get("bs", "")),
        "compiler": _compiler(parts.get("args")) if parts.get("model") else None,
        "backend": "torchbench",
        "status": {None: OK, NOT_IMPLEMENTED: "unsupported"}.get(failure, "failed"),
        "reason": failure,
        "latency_ms": latency,
        "metrics": numbers,
        "extra": {
            "userbenchmark": name,
            "environ": dict(environ),
            **({"test": parts["test"]} if "test" in parts else {}),
        },
    }
    try:
        return portable_result(**fields, **common)
    except FormatError as error:
        raise FormatError(f"{next(iter(values.values()))}: {error}") from error


def _compiler(arguments: str | None) -> str:
    """Returns `eager`, or the extra arguments that changed it."""
    if not arguments:
        return "eager"
    try:
        value = ast.literal_eval(arguments)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return arguments
    return " ".join(map(str, value)) or "eager" if isinstance(value, list) else arguments


def _timestamp(name: str) -> str | None:
    match = _FILE_TIME.fullmatch(PurePath(name).name)
    # The file contains no time zone.
    time = zoned_time(f"{match[1][:8]}T{match[1][8:]}") if match else None
    return time.isoformat() if time else None
