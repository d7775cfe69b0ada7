"""Results out of the results files of this suite.

Estimates, intervals and names are those that the history keeps of the same file, so that a result
that went through another format is the same point of the same trend.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comparative_benchmark.formats.result import OK, FormatError, Result
from comparative_benchmark.history.results_files import ResultsFiles
from comparative_benchmark.history.rows import Refusal, Row
from comparative_benchmark.results.compare_samples import (
    LATENCY,
    listed,
    mapping,
    process_samples,
    quantity,
)
from comparative_benchmark.results.store import ResultsFile

_HOST_FIELDS = (
    *("hostname", "cpu_model", "architecture", "logical_cpus", "usable_cpus", "threads"),
    *("memory_bytes", "load_average", "governor", "system", "python"),
)


def read_results(path: Path) -> tuple[list[Result], list[str]]:
    """Returns the results of a results file, and a sentence for each record that is none.

    Raises:
      ResultsFileError: the file can not be read, or is not one of ours.
    """
    document = ResultsFile(path).document()
    runs = {str(run.get("run_id")): run for run in document["runs"] if isinstance(run, Mapping)}
    results, refused = [], []
    rows = ResultsFiles().rows(path)
    for record, row in zip(document["benchmarks"], rows, strict=False):
        if isinstance(row, Refusal):
            refused.append(str(row))
            continue
        try:
            results.append(_result(record, row, runs.get(row.run_id, {})))
        except FormatError as error:
            refused.append(f"{path}: {error}")
    return results, refused


def _result(record: Mapping[str, Any], row: Row, run: Mapping[str, Any]) -> Result:
    definition = mapping(record, "definition")
    metrics = mapping(mapping(record, "metrics"), row.level)
    compiled = mapping(metrics, "compile")
    host = mapping(mapping(run, "execution_environment"), "host")
    is_timed = row.status == OK and quantity(metrics) == LATENCY
    return Result(
        case=row.benchmark,
        framework=row.framework or None,
        model=definition.get("model"),
        input_data=definition.get("input_data"),
        workload=mapping(definition, "workload").get("id"),
        workload_label=row.workload,
        workload_digest=row.workload_digest or None,
        data_type=definition.get("data_type"),
        precision=row.data_type or None,
        batch_size=row.batch_size,
        level=row.level or None,
        backend=row.backend,
        compiler="+".join([row.compiler, *row.options]),
        options=row.options,
        environment=row.environment or None,
        device=row.device or None,
        tags=tuple(listed(definition, "tags")),
        status=row.status,
        phase=record.get("phase"),
        reason=row.reason or None,
        samples_ms=tuple(map(tuple, process_samples(metrics))) if is_timed else (),
        latency_ms=row.latency_ms,
        latency_low_ms=row.latency_low_ms,
        latency_high_ms=row.latency_high_ms,
        compile_ms=_known(compiled, "cold_ms") or _single(metrics.get("compile_time_ms")),
        warm_compile_ms=_known(compiled, "warm_ms"),
        host_memory_peak_mb=row.host_memory_mb,
        device_memory_peak_mb=row.device_memory_mb,
        relative_rmse=row.error,
        tokens_per_s=mapping(metrics, "generation").get("tokens_per_s"),
        cpu_wall_ratio=metrics.get("cpu_wall_ratio"),
        program_sha256=row.program or None,
        wall_s=record.get("wall_s"),
        run_id=row.run_id,
        timestamp=row.time.isoformat(),
        git_revision=row.revision or None,
        versions=dict(row.versions),
        host={name: host[name] for name in _HOST_FIELDS if host.get(name) is not None},
        machine=row.machine or None,
        threads=row.threads,
        extra=dict(row.extra),
        identity=row.identity,
    )


def _known(holder: Mapping[str, Any], name: str) -> tuple[float, ...]:
    return tuple(value for value in listed(holder, name) if value is not None)


def _single(value: Any) -> tuple[float, ...]:
    return () if value is None else (value,)
