"""Results of the OpenXLA suite, the predecessor: summaries without samples."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw

from comparative_benchmark.reporting.formats.interface import Source, numbers
from comparative_benchmark.reporting.history.rows import (
    OK,
    Contents,
    FormatError,
    PortableResult,
    portable_result,
)
from comparative_benchmark.results.record import NonNegative

# Its runners by framework and compiler, with our names of the same stacks.
_BACKENDS = {
    ("jax", "xla", "framework_level"): "jax_xla",
    ("pytorch", "inductor", "framework_level"): "pt_inductor",
    ("tensorflow_v1", "xla", "framework_level"): "tf_xla",
    ("tensorflow_v2", "xla", "framework_level"): "tf_xla",
    ("jax", "xla", "compiler_level"): "xla_hlo",
}
_FRAMEWORKS = {"tf_v1": "tensorflow_v1", "tf_v2": "tensorflow_v2"}
# Of two hundred installed packages, those that affect the speed of programs.
_PACKAGES = ("iree", "jax", "torch", "tensorflow", "tf-nightly", "keras", "flax", "xla", "triton")
_OWN_FIELDS = ("median_latency_ms", "compile_time_ms", "device_memory_peak_mb", "error")
_Level: TypeAlias = Literal["framework_level", "compiler_level"]


class _Metrics(msgspec.Struct):
    error: str | None = None
    median_latency_ms: NonNegative | None = None
    compile_time_ms: NonNegative | None = None
    compile_time_s: NonNegative | None = None
    device_memory_peak_mb: NonNegative | None = None
    autotuning_enabled: bool | None = None


class _Definition(msgspec.Struct):
    benchmark_name: str
    framework: str
    compiler: str
    device: str
    data_type: str | None = None
    batch_size: int | None = None
    tags: tuple[str, ...] | None = None


class _Record(msgspec.Struct):
    definition: _Definition
    metrics: dict[_Level, _Metrics]


class _Package(msgspec.Struct):
    name: str
    version: str


class _Environment(msgspec.Struct):
    python_environment: tuple[_Package, ...] = ()


class _File(msgspec.Struct):
    trigger: dict[str, Any]
    execution_environment: _Environment
    benchmarks: Raw


def read(source: Source) -> Contents:
    """Returns the results of a file.

    Raises:
      FormatError: the file is not a results file of the OpenXLA suite.
    """
    what = "an OpenXLA suite results file"
    document = source.decoded(_File, what)
    timestamp = document.trigger.get("timestamp")
    packages = document.execution_environment.python_environment
    common = {
        "timestamp": timestamp if isinstance(timestamp, str) else None,
        "versions": {p.name: p.version for p in packages if p.name.lower().startswith(_PACKAGES)},
    }
    records = source.part(document.benchmarks)
    try:
        parts = list(records.items())
    except FormatError as error:
        raise FormatError(f"{records}: not {what}: {error}") from error
    results, refused = [], []
    for part in parts:
        try:
            plain = part.decoded(dict[str, Any])
            results.append(_result(part.decoded(_Record), plain, common))
        except FormatError as error:
            refused.append(f"{part}: {error}")
    return Contents(tuple(results), tuple(refused))


def matches(document: Any) -> bool:
    """Returns whether a JSON document looks like its results."""
    return (
        isinstance(document, dict)
        and {"trigger", "execution_environment", "benchmarks"} <= set(document)
        and "schema_version" not in document
    )


def _result(record: _Record, plain: Mapping[str, Any], common: Mapping[str, Any]) -> PortableResult:
    if len(record.metrics) != 1:
        raise FormatError(f"expected metrics for one level, got {len(record.metrics)} levels")
    [(level, metrics)] = record.metrics.items()
    definition, error, values = record.definition, metrics.error, plain["metrics"][level]
    framework = definition.framework.rpartition(".")[2].lower()
    framework = _FRAMEWORKS.get(framework, framework)
    if error is None and metrics.median_latency_ms is None and "compile_time_s" not in values:
        raise FormatError("missing 'median_latency_ms' or 'error'")
    return portable_result(
        case=definition.benchmark_name,
        framework=framework,
        data_type=definition.data_type,
        precision=definition.data_type,
        batch_size=definition.batch_size,
        level=level,
        backend=_BACKENDS.get(
            (framework, definition.compiler, level), f"{framework}_{definition.compiler}"
        ),
        compiler=definition.compiler,
        device=definition.device,
        tags=definition.tags or (),
        status=OK if error is None else "failed",
        reason=error,
        # A failed run may have summaries of the iterations before the failure.
        latency_ms=None if error is not None else metrics.median_latency_ms,
        compile_ms=_compile_ms(metrics),
        device_memory_peak_mb=metrics.device_memory_peak_mb,
        metrics={name: value for name, value in numbers(values).items() if name not in _OWN_FIELDS},
        extra={
            "definition": plain["definition"],
            "autotuning_enabled": bool(metrics.autotuning_enabled),
        },
        **common,
    )


def _compile_ms(metrics: _Metrics) -> tuple[float, ...]:
    if metrics.compile_time_ms is not None:
        return (metrics.compile_time_ms,)
    return () if metrics.compile_time_s is None else (metrics.compile_time_s * 1e3,)
