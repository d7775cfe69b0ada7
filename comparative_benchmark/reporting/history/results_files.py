"""Converts results files of `cbs run` for the history and for other formats."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.analysis.stats.analysis import SampleError, latency_interval
from comparative_benchmark.reporting.history.rows import (
    OK,
    Contents,
    FormatError,
    PortableResult,
    canonical,
    portable_result,
)
from comparative_benchmark.results.case import LATENCY, Case, cases_of
from comparative_benchmark.results.comparing.comparison import process_samples
from comparative_benchmark.results.comparing.noise_floor import program_digest
from comparative_benchmark.results.published import published
from comparative_benchmark.results.results_file import (
    ResultsFileError,
    decode_document,
    encode,
    parse,
    read_content,
)

_HOST_FIELDS = (
    *("hostname", "cpu_model", "architecture", "logical_cpus", "usable_cpus", "threads"),
    *("memory_bytes", "load_average", "governor", "system", "python"),
)


def read(path: Path, *, with_host: bool = True) -> Contents:
    """Returns the results of a file, and the parts that cannot be converted.

    Args:
      path: path of the file, which may be a pipe.
      with_host: whether to keep names of hosts and folders.
    """
    try:
        content = read_content(path)
        document = decode_document(content, str(path))
    except ResultsFileError as error:
        return Contents(refused=(str(error),))
    cases = cases_of(document if with_host else published(document))
    # As stored in the file: defaults added by later versions must not change a result's identity.
    records = json.loads(content)["benchmarks"]
    results, refused = [], []
    for position, (case, record) in enumerate(zip(cases, records, strict=False)):
        text = f"{canonical(record)}{case.result.run_id}"
        try:
            results.append(_result(case, hashlib.sha256(text.encode()).hexdigest()))
        except (SampleError, FormatError) as error:
            refused.append(f"{path}: $.benchmarks[{position}]: {error}")
    return Contents(tuple(results), tuple(refused))


def _result(case: Case, identity: str) -> PortableResult:
    result, metrics, run, host = case.result, case.metrics, case.run, case.host
    if run is None or host is None:
        raise FormatError(f"run {result.run_id} is not in the file, so the result has no date")
    definition, compiled, generation = result.definition, metrics.compile, metrics.generation
    status = result.status.value
    # The database rejects null characters, which may come from a log.
    reason = (result.reason or "").replace("\0", "\N{REPLACEMENT CHARACTER}")
    phase = f"in {result.phase}: " if result.phase else ""
    cold = _known(compiled.cold_ms) if compiled else ()
    facts = {name: value for name, value in parse(encode(host), "").items() if value is not None}
    processes = process_samples(metrics) if status == OK and case.quantity == LATENCY else []
    latency = latency_interval(processes) if processes else None
    errors = [v.relative_rmse for v in (metrics.final_verification, metrics.verification) if v]
    return portable_result(
        case=definition.benchmark_name,
        framework=case.framework,
        model=definition.model,
        input_data=definition.input_data,
        workload=definition.workload.id,
        workload_label=case.label,
        workload_digest=case.workload,
        data_type=definition.data_type,
        precision=definition.precision or definition.data_type,
        batch_size=definition.batch_size,
        level=result.level,
        backend=definition.backend,
        compiler=definition.compiler,
        options=definition.options,
        environment=definition.environment.name if definition.environment else None,
        device=case.device,
        tags=definition.tags,
        status=status,
        phase=result.phase or None,
        reason=f"{phase}{reason}" or None if status != OK else None,
        samples_ms=processes,
        latency_ms=latency.estimate if latency else None,
        latency_low_ms=latency.low if latency else None,
        latency_high_ms=latency.high if latency else None,
        compile_ms=cold or _known((metrics.compile_time_ms,)),
        warm_compile_ms=_known(compiled.warm_ms) if compiled else (),
        host_memory_peak_mb=metrics.host_memory_peak_mb or None,
        device_memory_peak_mb=metrics.device_memory_peak_mb or None,
        relative_rmse=next((error for error in errors if error is not None), None),
        tokens_per_s=generation.tokens_per_s if generation else None,
        cpu_wall_ratio=metrics.cpu_wall_ratio or None,
        program_sha256=program_digest(metrics),
        wall_s=result.wall_s,
        run_id=result.run_id,
        timestamp=run.trigger.time.isoformat(),
        git_revision=case.revision,
        # The interpreter affects the program, too.
        versions={**({"python": case.python} if case.python else {}), **result.versions}
        if result.versions
        else {},
        host={name: facts[name] for name in _HOST_FIELDS if name in facts},
        machine=host.cpu_model or host.architecture or None,
        threads=host.threads,
        metrics={"throughput": metrics.throughput.rate}
        if metrics.throughput and metrics.throughput.rate
        else {},
        extra=_extra(case),
        identity=identity,
    )


def _known(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(value for value in values if value is not None)


def _extra(case: Case) -> dict[str, Any]:
    """Returns data for readers of the history that have no column."""
    definition, metrics, host = case.result.definition, case.metrics, case.host
    extra: dict[str, Any] = {
        "model": definition.model,
        "tags": list(definition.tags),
        "hostname": host.hostname if host else None,
        "stop_reason": metrics.stop_reason,
        "contended": metrics.contention.contended if metrics.contention else None,
        "weights": metrics.program.weights,
    }
    if (check := metrics.verdict) and check.sqnr_db is not None:
        extra["sqnr_db"] = check.sqnr_db
    # The changes made by a recipe, and the remaining bytes.
    extra["recipe"] = metrics.program.notes.get("recipe")
    if throughput := metrics.throughput:
        extra["throughput"] = {"rate": throughput.rate, "units": throughput.units}
    if generation := metrics.generation:
        names = ("tokens_per_s", "prefill_ms", "decode_ms_per_token")
        extra["generation"] = {name: getattr(generation, name) for name in names}
    return {name: value for name, value in extra.items() if value is not None}
