"""Results of openxla-benchmark, whose suite this one began as: no samples, but their summary."""

from collections.abc import Mapping
from typing import Any

from comparative_benchmark.formats.result import OK, FormatError, Result, number
from comparative_benchmark.formats.source import Imported, Source, field

_LEVELS = ("framework_level", "compiler_level")
# Its runners by framework and compiler, under the names that the same stacks have here.
_BACKENDS = {
    ("jax", "xla", "framework_level"): "jax_xla",
    ("pytorch", "inductor", "framework_level"): "pt_inductor",
    ("tensorflow_v1", "xla", "framework_level"): "tf_xla",
    ("tensorflow_v2", "xla", "framework_level"): "tf_xla",
    ("jax", "xla", "compiler_level"): "xla_hlo",
}
_FRAMEWORKS = {"tf_v1": "tensorflow_v1", "tf_v2": "tensorflow_v2"}
# Of its two hundred installed packages those that decide how fast a program is.
_PACKAGES = ("iree", "jax", "torch", "tensorflow", "tf-nightly", "keras", "flax", "xla", "triton")
_OWN_FIELDS = ("median_latency_ms", "compile_time_ms", "device_memory_peak_mb", "error")


def read(source: Source) -> Imported:
    """Returns the results of a file.

    Raises:
      FormatError: it is no results file of openxla-benchmark.
    """
    document = source.json()
    try:
        trigger = field(document, "trigger", dict)
        environment = field(document, "execution_environment", dict)
        records = field(document, "benchmarks", list)
    except FormatError as error:
        raise FormatError(f"{source.at()}: no results of openxla-benchmark: {error}") from error
    common = {
        "timestamp": trigger["timestamp"] if isinstance(trigger.get("timestamp"), str) else None,
        "versions": _versions(environment),
    }
    results, refused = [], []
    for position, record in enumerate(records):
        try:
            results.append(_result(record, common))
        except FormatError as error:
            refused.append(f"{source.at('benchmarks', position)}: {error}")
    return Imported(tuple(results), tuple(refused))


def matches(document: Any) -> bool:
    """Tells whether a JSON document looks like its results."""
    return (
        isinstance(document, dict)
        and {"trigger", "execution_environment", "benchmarks"} <= set(document)
        and "schema_version" not in document
    )


def _result(record: Any, common: Mapping[str, Any]) -> Result:
    definition, levels = field(record, "definition", dict), field(record, "metrics", dict)
    known = [name for name in _LEVELS if name in levels]
    if len(known) != 1:
        raise FormatError(f"metrics of {len(known)} levels; one of {', '.join(_LEVELS)} should be")
    [level] = known
    metrics = field(levels, level, dict)
    framework = field(definition, "framework", str).rpartition(".")[2].lower()
    framework = _FRAMEWORKS.get(framework, framework)
    compiler = field(definition, "compiler", str)
    error = field(metrics, "error", str, optional=True)
    median = metrics.get("median_latency_ms")
    if error is None and median is None and "compile_time_s" not in metrics:
        raise FormatError("neither 'median_latency_ms' nor 'error'")
    numbers = {
        name: number(name, value)
        for name, value in metrics.items()
        if name not in _OWN_FIELDS and isinstance(value, (int, float)) and type(value) is not bool
    }
    memory = metrics.get("device_memory_peak_mb")
    return Result(
        case=field(definition, "benchmark_name", str),
        framework=framework,
        data_type=field(definition, "data_type", str, optional=True),
        precision=field(definition, "data_type", str, optional=True),
        batch_size=field(definition, "batch_size", int, optional=True),
        level=level,
        backend=_BACKENDS.get((framework, compiler, level), f"{framework}_{compiler}"),
        compiler=compiler,
        device=field(definition, "device", str),
        tags=tuple(field(definition, "tags", list, optional=True) or ()),
        status=OK if error is None else "failed",
        reason=error,
        # A failed run may have summaries of the iterations before it failed.
        latency_ms=None if error or median is None else number("median_latency_ms", median),
        compile_ms=_compile_ms(metrics),
        device_memory_peak_mb=None if memory is None else number("device_memory_peak_mb", memory),
        metrics=numbers,
        extra={
            "definition": definition,
            "autotuning_enabled": bool(metrics.get("autotuning_enabled")),
        },
        **common,
    )


def _compile_ms(metrics: Mapping[str, Any]) -> tuple[float, ...]:
    for name, factor in (("compile_time_ms", 1.0), ("compile_time_s", 1e3)):
        if metrics.get(name) is not None:
            return (number(name, metrics[name]) * factor,)
    return ()


def _versions(environment: Mapping[str, Any]) -> dict[str, str]:
    packages = environment.get("python_environment")
    return {
        item["name"]: item["version"]
        for item in (packages if isinstance(packages, list) else [])
        if isinstance(item, dict)
        and isinstance(item.get("name"), str)
        and isinstance(item.get("version"), str)
        and item["name"].lower().startswith(_PACKAGES)
    }
