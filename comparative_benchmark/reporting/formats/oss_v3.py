"""PyTorch's OSS benchmark database, schema v3: one record per metric, one JSON object per line.

Values are Float32 and maps only hold text, so exact numbers, samples and status are stored as text
in `extra_info`. The uploader adds the metadata of its CI job: repository, branch and workflow,
which are therefore not written here.
"""

import datetime
import json
import re
import statistics
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import msgspec
from msgspec import Raw

from comparative_benchmark.reporting.formats.interface import (
    CARRIER,
    Exported,
    Part,
    Source,
    json_line,
    remarks_on,
)
from comparative_benchmark.reporting.history.rows import (
    OK,
    Contents,
    FormatError,
    Number,
    PortableResult,
    count_of,
    decoded,
    portable_result,
    zoned_time,
)

SCHEMA_VERSION = "v3"
NAME = "common-benchmark-suite"
LATENCY = "latency (ms)"
_MODE = "inference"
# Values that are not numbers, as PyTorch's jobs write them.
_PASSED = re.compile(r'\["(pass|skip)\w*"\]')
_MODEL_TYPE = "comparative suite"
_FLOAT32_MAX = 3.4028234663852886e38
_UINT32_MAX = 2**32 - 1


def export(results: Sequence[PortableResult]) -> Exported:
    """Returns JSON lines."""
    lines = [json_line(record) for result in results for record in records_of(result)]
    rounded = sum(
        any(float32(value) != value for value in values)
        for result in results
        for values in _metrics(result).values()
    )
    return Exported(
        files={"": "".join(f"{line}\n" for line in lines).encode()},
        remarks=remarks_on(
            results,
            f"metrics that lose digits in Float32: {rounded}; exact values, samples, intervals and "
            f"statuses are in metric.extra_info ({CARRIER!r}, 'exact_values')",
        ),
    )


def matches(document: Any) -> bool:
    """Returns whether a JSON value looks like a record, or a list of them."""
    first = document[0] if isinstance(document, list) and document else document
    return isinstance(first, dict) and isinstance(first.get("metric"), dict)


def records_of(result: PortableResult) -> list[dict[str, Any]]:
    """Returns the records of a result, one per metric; the first carries the exact result."""
    shared = _shared(result)
    records = []
    for number, (name, values) in enumerate((_metrics(result) or {LATENCY: []}).items()):
        extra = {"carried_by": CARRIER}
        if result.status != OK or not values:
            # As its own producers write values that are not numbers.
            extra["benchmark_values"] = json.dumps([result.status])
        else:
            extra["exact_values"] = json_line(values)
        if not number:
            extra[CARRIER] = json_line(result.as_json())
        records.append(
            {
                **shared,
                "metric": {
                    "name": name,
                    "benchmark_values": [float32(value) for value in values],
                    "target_value": 0.0,
                    "extra_info": extra,
                },
            }
        )
    return records


def _metrics(result: PortableResult) -> dict[str, list[float]]:
    """Returns the values of each metric; empty for a result that is not ok."""
    if result.status != OK:
        return {}
    processes = [statistics.median(process) for process in result.samples_ms]
    latency = [] if result.latency_ms is None else [result.latency_ms]
    metrics: dict[str, Sequence[float | None]] = {
        LATENCY: processes or latency,
        "compile time (ms)": result.compile_ms,
        "warm compile time (ms)": result.warm_compile_ms,
        "peak host memory (MB)": [result.host_memory_peak_mb],
        "peak device memory (MB)": [result.device_memory_peak_mb],
        "tokens per second": [result.tokens_per_s],
        "relative RMSE": [result.relative_rmse],
        **{name: [value] for name, value in result.metrics.items()},
    }
    known = {
        name: [value for value in values if value is not None] for name, values in metrics.items()
    }
    return {name: values for name, values in known.items() if values}


def _mode(result: PortableResult) -> str:
    trains = "train" in result.tags or "_TRAIN_" in (result.model or "")
    return "training" if trains else _MODE


def _shared(result: PortableResult) -> dict[str, Any]:
    host = result.host
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "name": NAME,
        "benchmark": {
            "name": NAME,
            "mode": _mode(result),
            "dtype": result.precision or result.data_type or "",
            "extra_info": _map(
                device=result.device,
                status=result.status,
                reason=result.reason,
                phase=result.phase,
                run_id=result.run_id,
                suite_git_revision=result.git_revision,
                level=result.level,
                batch_size=result.batch_size,
                compiler=result.compiler,
                environment=result.environment,
                input_data=result.input_data,
                case=result.case,
            ),
        },
        "model": {
            "name": result.model or result.case,
            "type": _MODEL_TYPE,
            "backend": result.competitor,
            "origins": [NAME],
            "extra_info": _map(framework=result.framework, workload=result.workload),
        },
        "runners": [
            {
                "name": result.device or "",
                "type": str(host.get("cpu_model") or ""),
                "cpu_info": str(host.get("architecture") or ""),
                "cpu_count": _uint32(host.get("logical_cpus")),
                "mem_info": "",
                "avail_mem_in_gb": _uint32((host.get("memory_bytes") or 0) // 2**30),
                "gpu_info": "",
                "gpu_count": 0,
                "gpu_mem_info": "",
                "avail_gpu_mem_in_gb": 0,
                "extra_info": _map(hostname=host.get("hostname"), system=host.get("system")),
            }
        ],
        "dependencies": {
            name: {"repo": "", "branch": "", "sha": "", "version": version, "extra_info": {}}
            for name, version in result.versions.items()
        },
    }
    if moment := zoned_time(result.timestamp):
        record["timestamp"] = max(int(moment.timestamp()), 0)
    return record


def _map(**values: Any) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}


def _uint32(value: Any) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return min(max(value, 0), _UINT32_MAX) if is_count else 0


def float32(value: float) -> float:
    """Returns a value rounded to Float32, or the largest Float32 if it is out of range."""
    if abs(value) > _FLOAT32_MAX:
        return _FLOAT32_MAX if value > 0 else -_FLOAT32_MAX
    return float(struct.unpack("f", struct.pack("f", value))[0])


def iso_time(seconds: Any) -> str | None:
    """Returns the time of a record's timestamp; None if it has no valid one."""
    is_number = isinstance(seconds, int) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < 2**33:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


# Names that producers of the database use for the time of one run in ms.
_LATENCIES = (LATENCY, "latency(ms)", "abs_latency", "avg_inference_latency(ms)")
_TIME_OF_JOB = ("timestamp", "head_sha", "head_branch", "repo", "workflow_id", "job_id")


class _Holder(msgspec.Struct):
    name: str | None = None
    extra_info: dict[str, str] | None = None


class _Benchmark(_Holder):
    dtype: str | None = None
    mode: str | None = None


class _Model(_Holder):
    backend: str | None = None


class _Metric(msgspec.Struct):
    name: str
    benchmark_values: list[Number]
    extra_info: dict[str, str] | None = None


class _Fields(msgspec.Struct):
    metric: _Metric
    benchmark: _Benchmark | None = None
    model: _Model | None = None
    runners: list[Any] | None = None
    dependencies: dict[str, Any] | None = None
    timestamp: Any = None
    head_sha: Any = None


@attrs.frozen
class _Record:
    """A record, raw and checked."""

    part: Part
    value: dict[str, Any]
    fields: _Fields

    @property
    def metric(self) -> _Metric:
        return self.fields.metric

    @property
    def extra(self) -> Mapping[str, str]:
        """The metric's own map."""
        return self.metric.extra_info or {}

    @property
    def group(self) -> str:
        """Returns the common key of records of one configuration."""
        shared = {
            name: self.value.get(name)
            for name in ("benchmark", "model", "runners", "dependencies", "inputs", *_TIME_OF_JOB)
        }
        return json.dumps(shared, sort_keys=True)


def read(source: Source) -> Contents:
    """Returns the results of records of the database.

    Raises:
      FormatError: the file has no record.
    """
    own: dict[str, list[_Record]] = {}
    foreign: dict[str, list[_Record]] = {}
    results, refused = [], []
    for part in _parts(source):
        try:
            record = _Record(part, part.decoded(dict[str, Any]), part.decoded(_Fields))
        except FormatError as error:
            refused.append(f"{part}: not a record: {error}")
            continue
        is_own = record.extra.get("carried_by") == CARRIER
        (own if is_own else foreign).setdefault(record.group, []).append(record)
    if not (own or foreign or refused):
        raise FormatError(f"{source.name}: contains no OSS benchmark database records")
    for members, read_group in [
        *((members, _carried) for members in own.values()),
        *((members, _foreign) for members in foreign.values()),
    ]:
        try:
            results.append(read_group(members))
        except FormatError as error:
            refused.append(f"{members[0].part}: {error}")
    return Contents(tuple(results), tuple(refused))


def _parts(source: Source) -> Iterator[Part]:
    """Yields the records from a list, a single object, or JSON lines."""
    try:
        documents = [source.part(source.decoded(Raw))]
    except FormatError:
        documents, offset = [], 0
        for line in source.content.split(b"\n"):
            if line.strip():
                documents.append(Part(source, line, offset))
            offset += len(line) + 1
    for document in documents:
        is_list = document.content.lstrip().startswith(b"[")
        try:
            yield from document.items() if is_list else [document]
        except FormatError:
            yield document


def _carried(members: Sequence[_Record]) -> PortableResult:
    """Returns the exact result carried by our own records.

    Raises:
      FormatError: it is missing, or differs from the records.
    """
    copies = [member.extra[CARRIER] for member in members if CARRIER in member.extra]
    if len(copies) != 1:
        raise FormatError(
            f"{len(copies)} records for this result contain metric.extra_info.{CARRIER}, expected 1"
        )
    try:
        result = decoded(copies[0])
    except FormatError as error:
        raise FormatError(f"metric.extra_info.{CARRIER}: {error}") from error
    records = {record["metric"]["name"]: record for record in records_of(result)}
    for member in members:
        name = member.metric.name
        expected = records.pop(name, None)
        # A CI job adds its metadata; fields written by the suite must be unchanged.
        wrong = expected is None or any(
            _without_mode(member.value.get(key)) != _without_mode(value)
            for key, value in expected.items()
        )
        if wrong:
            raise FormatError(f"metric {name!r} differs from metric.extra_info.{CARRIER}")
    if records:
        raise FormatError(f"the record for metric {next(iter(records))!r} is missing")
    return result


def _without_mode(value: Any) -> Any:
    """Returns a field of a record; earlier versions wrote `inference` for training too."""
    return {**value, "mode": ""} if isinstance(value, dict) and "mode" in value else value


def _foreign(members: Sequence[_Record]) -> PortableResult:
    first, record = members[0].fields, members[0].value
    benchmark, model = first.benchmark or _Benchmark(), first.model or _Model()
    extra = benchmark.extra_info or {}
    metrics: dict[str, float] = {}
    texts: dict[str, str] = {}
    for member in members:
        name, values = member.metric.name, member.metric.benchmark_values
        if values:
            metrics[name] = statistics.median(values)
        if "benchmark_values" in member.extra:
            texts[name] = member.extra["benchmark_values"]
    failure = next((text for text in texts.values() if not _PASSED.fullmatch(text)), None)
    latency = next((metrics[name] for name in _LATENCIES if name in metrics), None)
    runners = first.runners or []
    runner = runners[0] if runners and isinstance(runners[0], dict) else {}
    mode = None if benchmark.mode == _MODE else benchmark.mode
    return portable_result(
        case="/".join(filter(None, (benchmark.name, model.name, mode))) or "-",
        model=model.name or None,
        backend=model.backend or benchmark.name or None,
        compiler=extra.get("torch_compile_mode") or extra.get("backend"),
        precision=benchmark.dtype or None,
        device=extra.get("device") or runner.get("name") or None,
        batch_size=count_of(extra.get("batch_size", "")),
        # A program that failed in one metric has no speed in another.
        status=OK if failure is None else "failed",
        reason=failure,
        latency_ms=latency if failure is None else None,
        metrics=metrics,
        timestamp=iso_time(first.timestamp),
        git_revision=first.head_sha or None,
        versions={
            name: item["version"]
            for name, item in (first.dependencies or {}).items()
            if isinstance(item, dict) and isinstance(item.get("version"), str) and item["version"]
        },
        host={
            name: value
            for name, value in (
                ("cpu_model", runner.get("type") or runner.get("cpu_info") or extra.get("arch")),
                ("logical_cpus", runner.get("cpu_count")),
            )
            if value
        },
        extra={
            "benchmark": record.get("benchmark") or {},
            "model": record.get("model") or {},
            **({"texts": texts} if texts else {}),
            **{name: record[name] for name in _TIME_OF_JOB if name in record},
        },
    )
