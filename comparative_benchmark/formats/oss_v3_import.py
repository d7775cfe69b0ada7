"""Records of PyTorch's OSS benchmark database: those of `oss_v3`, and those of others."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import msgspec
from msgspec import Raw

from comparative_benchmark.formats import oss_v3
from comparative_benchmark.formats.exported import CARRIER
from comparative_benchmark.formats.source import Part, Source
from comparative_benchmark.history.portable import (
    OK,
    Contents,
    FormatError,
    Number,
    PortableResult,
    decoded,
    made,
)

# Names that producers of the database give to the time of one run in ms.
_LATENCIES = (oss_v3.LATENCY, "latency(ms)", "abs_latency", "avg_inference_latency(ms)")
_TIME_OF_JOB = ("timestamp", "head_sha", "head_branch", "repo", "workflow_id", "job_id")


class _Holder(msgspec.Struct):
    name: str | None = None
    extra_info: dict[str, str] | None = None


class _Benchmark(_Holder):
    dtype: str | None = None


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
    """A record, as it stands in the file and checked."""

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
        """What records of one configuration have in common."""
        shared = {
            name: self.value.get(name)
            for name in ("benchmark", "model", "runners", "dependencies", "inputs", *_TIME_OF_JOB)
        }
        return json.dumps(shared, sort_keys=True)


def read(source: Source) -> Contents:
    """Returns the results of records of the database.

    Raises:
      FormatError: there is no record at all.
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
        raise FormatError(f"{source.name}: no records of the OSS benchmark database")
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
    """Yields the records, whether in a list, alone, or one a line."""
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
    """Returns the exact result that records of ours carry.

    Raises:
      FormatError: it is missing, or says something else than the records do.
    """
    copies = [member.extra[CARRIER] for member in members if CARRIER in member.extra]
    if len(copies) != 1:
        raise FormatError(
            f"{len(copies)} records of this result contain an exact copy, expected one"
        )
    try:
        result = decoded(copies[0])
    except FormatError as error:
        raise FormatError(f"metric.extra_info.{CARRIER}: {error}") from error
    due = {record["metric"]["name"]: record for record in oss_v3.records_of(result)}
    for member in members:
        name = member.metric.name
        expected = due.pop(name, None)
        # A CI job adds its metadata; what the suite wrote must be as it was.
        wrong = expected is None or any(
            member.value.get(key) != value for key, value in expected.items()
        )
        if wrong:
            raise FormatError(f"metric {name!r} differs from its exact copy")
    if due:
        raise FormatError(f"the record of metric {next(iter(due))!r} is missing")
    return result


def _foreign(members: Sequence[_Record]) -> PortableResult:
    first, told = members[0].fields, members[0].value
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
    runners = first.runners or []
    runner = runners[0] if runners and isinstance(runners[0], dict) else {}
    return made(
        case="/".join(filter(None, (benchmark.name, model.name))) or "-",
        model=model.name or None,
        backend=model.backend or benchmark.name or None,
        compiler=extra.get("torch_compile_mode") or extra.get("backend"),
        precision=benchmark.dtype or None,
        device=extra.get("device") or runner.get("name") or None,
        batch_size=int(batch) if (batch := extra.get("batch_size", "")).isdigit() else None,
        status=OK,
        latency_ms=next((metrics[name] for name in _LATENCIES if name in metrics), None),
        metrics=metrics,
        timestamp=oss_v3.iso_time(first.timestamp),
        git_revision=first.head_sha or None,
        versions={
            name: item["version"]
            for name, item in (first.dependencies or {}).items()
            if isinstance(item, dict) and isinstance(item.get("version"), str) and item["version"]
        },
        host={
            name: value
            for name, value in (
                ("cpu_model", runner.get("type") or runner.get("cpu_info")),
                ("logical_cpus", runner.get("cpu_count")),
            )
            if value
        },
        extra={
            "benchmark": told.get("benchmark") or {},
            "model": told.get("model") or {},
            **({"texts": texts} if texts else {}),
            **{name: told[name] for name in _TIME_OF_JOB if name in told},
        },
    )
