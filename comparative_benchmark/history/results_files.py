"""Results files of `cbs run` as rows of the history."""

import datetime
import hashlib
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeGuard

from comparative_benchmark.history.rows import OK, STATUSES, Refusal, Row, RowError, canonical
from comparative_benchmark.results.compare_samples import mapping, process_samples
from comparative_benchmark.results.record import SCHEMA_VERSION
from comparative_benchmark.results.unchanged import program_digest
from comparative_benchmark.stats.analysis import checked, interval_of_medians, latency_interval

# Of a single process the interval rests on medians of as many batches of consecutive samples.
_Z = 1.959964


class ResultsFiles:
    """Reads the JSON that `cbs run -o` writes."""

    name = "cbs"

    def rows(self, path: Path) -> Iterator[Row | Refusal]:
        """See `Importer.rows`."""
        try:
            document = json.loads(path.read_bytes())
        except OSError as error:
            yield Refusal(path=path, reason=f"can not be read: {error.strerror or error}")
            return
        except json.JSONDecodeError as error:
            place = f"line {error.lineno}, column {error.colno}"
            yield Refusal(path=path, place=place, reason=f"is no JSON: {error.msg}")
            return
        except (UnicodeDecodeError, RecursionError, ValueError) as error:
            yield Refusal(path=path, reason=f"is no JSON: {error}")
            return
        if reason := _foreign(document):
            yield Refusal(path=path, reason=reason)
            return
        runs = {str(run.get("run_id")): run for run in document["runs"] if isinstance(run, Mapping)}
        for position, record in enumerate(document["benchmarks"]):
            try:
                yield _row(record, runs)
            except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
                yield Refusal(path=path, place=f"record {position}", reason=str(error))


def _foreign(document: Any) -> str | None:
    """Says why a document is none of ours; None if it is."""
    if not isinstance(document, Mapping):
        return f"is no results file: JSON, but a {type(document).__name__} and no object"
    version = document.get("schema_version")
    if type(version) is not int:
        return "is no results file: it has no schema_version"
    if version != SCHEMA_VERSION:
        return f"is of schema version {version}; this program reads {SCHEMA_VERSION}"
    for name in ("runs", "benchmarks"):
        if not isinstance(document.get(name), list):
            return f"is no results file: it has no list of {name}"
    return None


def _row(record: Any, runs: Mapping[str, Mapping[str, Any]]) -> Row:
    definition = mapping(record, "definition")
    workload = mapping(definition, "workload")
    if not definition or not workload:
        raise RowError("it has no definition, or that has no workload")
    level, metrics = next(iter(mapping(record, "metrics").items()), ("", None))
    if not isinstance(metrics, Mapping):
        raise RowError("it has no metrics")
    run_id = str(record.get("run_id"))
    run = runs.get(run_id)
    if run is None:
        raise RowError(f"its run {run_id} is not in the file, so its time is not known")
    status = record.get("status")
    if status not in STATUSES:
        raise RowError(f"its status {status!r} is none of {', '.join(STATUSES)}")
    around = mapping(run, "execution_environment")
    host = mapping(around, "host")
    environment = mapping(definition, "environment").get("name") or ""
    compiler = str(definition.get("compiler") or "")
    options = _texts(definition.get("options"))
    latency = _latency(metrics) if status == OK else {}
    compiled = mapping(metrics, "compile")
    return Row(
        source=ResultsFiles.name,
        workload=str(workload.get("label") or workload.get("digest") or ""),
        workload_digest=str(workload.get("digest") or ""),
        benchmark=str(definition.get("benchmark_name") or ""),
        framework=str(definition.get("framework") or "").rpartition(".")[2].lower(),
        level=str(level),
        data_type=str(definition.get("precision") or definition.get("data_type") or ""),
        batch_size=definition.get("batch_size"),
        backend=_backend(definition),
        # The record has them as `compiler+option`.
        compiler=compiler.removesuffix("".join(f"+{option}" for option in options)),
        options=options,
        environment=str(environment),
        device=str(definition.get("device") or ""),
        machine=str(host.get("cpu_model") or host.get("architecture") or ""),
        threads=host.get("threads"),
        time=_time(run),
        run_id=run_id,
        revision=str(around.get("git_revision") or ""),
        versions=_versions(record, _python(host, around, environment)),
        program=program_digest(metrics) or "",
        status=status,
        reason=_reason(record),
        **latency,
        compile_ms=_median(compiled.get("cold_ms")) or _positive(metrics, "compile_time_ms"),
        warm_compile_ms=_median(compiled.get("warm_ms")),
        host_memory_mb=_positive(metrics, "host_memory_peak_mb"),
        device_memory_mb=_positive(metrics, "device_memory_peak_mb"),
        error=_error(metrics),
        extra=_extra(definition, metrics, host),
        identity=hashlib.sha256(f"{canonical(record)}{run_id}".encode()).hexdigest(),
    )


def _versions(record: Mapping[str, Any], python: Any) -> dict[str, str]:
    """Returns the package versions, the interpreter among them: it runs the program, too."""
    versions = {str(name): str(found) for name, found in mapping(record, "versions").items()}
    return {**({"python": str(python)} if python else {}), **versions} if versions else {}


def _python(host: Mapping[str, Any], around: Mapping[str, Any], environment: Any) -> Any:
    if not environment:
        return host.get("python")
    return mapping(mapping(around, "environments"), str(environment)).get("python_version")


def _backend(definition: Mapping[str, Any]) -> str:
    backend = definition.get("backend")
    if not isinstance(backend, str):
        raise RowError("it does not say its backend")
    return backend


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _time(run: Mapping[str, Any]) -> datetime.datetime:
    text = mapping(run, "trigger").get("timestamp")
    try:
        time = datetime.datetime.fromisoformat(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise RowError(f"the time of its run is none: {text!r}") from None
    if time.tzinfo is None:
        raise RowError(f"the time of its run has no zone: {text!r}")
    return time


def _reason(record: Mapping[str, Any]) -> str:
    if record["status"] == OK:
        return ""
    phase = f"in {record['phase']}: " if record.get("phase") else ""
    # A zero byte of a log would keep the row out of the database.
    return f"{phase}{record.get('reason') or ''}".replace("\0", "\ufffd")


def _latency(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the latency of a result, with its 95 % interval; nothing where it has none."""
    if metrics.get("stop_reason") == "compile_only":
        return {}
    processes = _samples(metrics)
    if len(processes) > 1:
        found = interval_of_medians([statistics.median(values) for values in processes])
    else:
        found = latency_interval(processes)
    return {
        "latency_ms": found.estimate,
        "latency_low_ms": found.low,
        "latency_high_ms": found.high,
        "processes": found.processes,
    }


def _samples(metrics: Mapping[str, Any]) -> list[list[float]]:
    """Returns the latencies of each process as `process_samples` and `checked` do, in less time.

    What is not plainly sound is left to them, and so are the words for what is wrong with it.
    """
    try:
        blocks = [
            [b["latencies_ms"] for b in process["blocks"]] for process in metrics["processes"]
        ]
        processes = [list(chain.from_iterable(some)) for some in blocks]
        # A block without samples is none of ours.
        sound = all(map(all, blocks)) and all(
            set(map(type, values)) <= {int, float}
            and 1e-15 < min(values) <= max(values) < 1e15
            and math.isfinite(sum(values))
            for values in processes
        )
    except (LookupError, TypeError, ValueError):
        sound = False
    if sound and len(processes) > 1:
        return processes
    return [values.tolist() for values in checked(process_samples(metrics))]


def _median(values: Any) -> float | None:
    if not isinstance(values, list):
        return None
    known = [value for value in values if _is_number(value)]
    return float(statistics.median(known)) if known else None


def _positive(metrics: Mapping[str, Any], name: str) -> float | None:
    value = metrics.get(name)
    return float(value) if _is_number(value) and value > 0 else None


def _error(metrics: Mapping[str, Any]) -> float | None:
    for name in ("final_verification", "verification"):
        value = mapping(metrics, name).get("relative_rmse")
        if _is_number(value) and math.isfinite(value):
            return float(value)
    return None


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _extra(
    definition: Mapping[str, Any],
    metrics: Mapping[str, Any],
    host: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns what the history has no column for and its readers ask for."""
    found: dict[str, Any] = {
        "model": definition.get("model"),
        "tags": definition.get("tags"),
        "hostname": host.get("hostname"),
        "stop_reason": metrics.get("stop_reason"),
        "contended": mapping(metrics, "contention").get("contended"),
        "weights": mapping(metrics, "program").get("weights"),
    }
    if generation := mapping(metrics, "generation"):
        names: Sequence[str] = ("tokens_per_s", "prefill_ms", "decode_ms_per_token")
        found["generation"] = {name: generation.get(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}
