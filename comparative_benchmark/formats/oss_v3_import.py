"""Records of PyTorch's OSS benchmark database: those of `oss_v3`, and those of others."""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from comparative_benchmark.formats import oss_v3
from comparative_benchmark.formats.exported import CARRIER
from comparative_benchmark.formats.result import OK, FormatError, Result, number
from comparative_benchmark.formats.source import Imported, Place, Source, field

# Names that producers of the database give to the time of one run in ms.
_LATENCIES = (oss_v3.LATENCY, "latency(ms)", "abs_latency", "avg_inference_latency(ms)")
_TIME_OF_JOB = ("timestamp", "head_sha", "head_branch", "repo", "workflow_id", "job_id")


@attrs.frozen
class _Record:
    """A record and where it stands."""

    place: Place
    value: dict[str, Any]

    @property
    def metric(self) -> dict[str, Any]:
        found: dict[str, Any] = self.value["metric"]
        return found

    @property
    def extra(self) -> Mapping[str, Any]:
        """The metric's own map."""
        return self.metric.get("extra_info") or {}

    @property
    def group(self) -> str:
        """What records of one configuration have in common."""
        shared = {
            name: self.value.get(name)
            for name in ("benchmark", "model", "runners", "dependencies", "inputs", *_TIME_OF_JOB)
        }
        return json.dumps(shared, sort_keys=True)


def read(source: Source) -> Imported:
    """Returns the results of records of the database.

    Raises:
      FormatError: there is no record at all.
    """
    records, refused = _records(source)
    own: dict[str, list[_Record]] = {}
    foreign: dict[str, list[_Record]] = {}
    for record in records:
        try:
            _check(record.value)
        except FormatError as error:
            refused.append(f"{record.place}: {error}")
            continue
        is_own = record.extra.get("carried_by") == CARRIER
        (own if is_own else foreign).setdefault(record.group, []).append(record)
    results = []
    for members, read_group in [
        *((members, _carried) for members in own.values()),
        *((members, _foreign) for members in foreign.values()),
    ]:
        try:
            results.append(read_group(members))
        except FormatError as error:
            refused.append(f"{members[0].place}: {error}")
    return Imported(tuple(results), tuple(refused))


def _records(source: Source) -> tuple[list[_Record], list[str]]:
    """Returns the records, whether in a list, alone, or one a line; and what is none."""
    try:
        document = json.loads(source.text)
        items = document if isinstance(document, list) else [document]
        is_list = isinstance(document, list)
        placed = [(Place(source, (i,) if is_list else ()), item) for i, item in enumerate(items)]
        refused: list[str] = []
    except (ValueError, RecursionError):
        placed, refused = _lines(source)
    found = [_Record(place, item) for place, item in placed if isinstance(item, dict)]
    refused += [f"{place}: no record" for place, item in placed if not isinstance(item, dict)]
    if not found:
        raise FormatError(f"{source.name}: no record of the OSS benchmark database")
    return found, refused


def _lines(source: Source) -> tuple[list[tuple[Place, Any]], list[str]]:
    placed: list[tuple[Place, Any]] = []
    refused = []
    for position, line in enumerate(source.text.split("\n"), start=1):
        if not line.strip():
            continue
        place = Place(source, (), position)
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            refused.append(f"{place}: no JSON ({getattr(error, 'msg', error)})")
            continue
        placed += [(place, item) for item in (value if isinstance(value, list) else [value])]
    return placed, refused


def _check(record: Mapping[str, Any]) -> None:
    benchmark = field(record, "benchmark", dict, optional=True) or {}
    model = field(record, "model", dict, optional=True) or {}
    metric = field(record, "metric", dict)
    field(metric, "name", str)
    for value in field(metric, "benchmark_values", list):
        number(metric["name"], value)
    for holder in (benchmark, model, metric):
        for name, value in (field(holder, "extra_info", dict, optional=True) or {}).items():
            if not isinstance(value, str):
                raise FormatError(f"extra_info.{name} is no text; the database holds text there")
    field(record, "runners", list, optional=True)
    field(record, "dependencies", dict, optional=True)


def _carried(members: Sequence[_Record]) -> Result:
    """Returns the exact result that records of ours carry.

    Raises:
      FormatError: it is missing, or says something else than the records do.
    """
    copies = [member.extra[CARRIER] for member in members if CARRIER in member.extra]
    if len(copies) != 1:
        raise FormatError(f"{len(copies)} records of this result carry it exactly; one should")
    try:
        result = Result.from_json(json.loads(copies[0]))
    except ValueError as error:
        raise FormatError(f"metric.extra_info.{CARRIER}: {error}") from error
    due = {record["metric"]["name"]: record for record in oss_v3.records_of(result)}
    for member in members:
        name = member.metric["name"]
        expected = due.pop(name, None)
        # A CI job adds its metadata; what the suite wrote must be as it was.
        wrong = expected is None or any(
            member.value.get(key) != value for key, value in expected.items()
        )
        if wrong:
            raise FormatError(f"metric {name!r} is not what its exact copy says")
    if due:
        raise FormatError(f"the record of metric {next(iter(due))!r} is missing")
    return result


def _foreign(members: Sequence[_Record]) -> Result:
    first = members[0].value
    benchmark, model = first.get("benchmark") or {}, first.get("model") or {}
    extra = benchmark.get("extra_info") or {}
    metrics: dict[str, float] = {}
    texts: dict[str, str] = {}
    for member in members:
        name = member.metric["name"]
        values = member.metric["benchmark_values"]
        if values:
            metrics[name] = statistics.median(values)
        if "benchmark_values" in member.extra:
            texts[name] = member.extra["benchmark_values"]
    latency = next((metrics[name] for name in _LATENCIES if name in metrics), None)
    if latency is not None and latency < 0:
        raise FormatError(f"a latency of {latency} ms")
    runners = first.get("runners") or []
    runner = runners[0] if runners and isinstance(runners[0], dict) else {}
    dependencies = first.get("dependencies") or {}
    return Result(
        case="/".join(filter(None, (_string(benchmark, "name"), _string(model, "name")))) or "-",
        model=_string(model, "name"),
        backend=_string(model, "backend") or _string(benchmark, "name"),
        compiler=extra.get("torch_compile_mode") or extra.get("backend"),
        precision=_string(benchmark, "dtype"),
        device=extra.get("device") or _string(runner, "name"),
        batch_size=int(batch) if (batch := extra.get("batch_size", "")).isdigit() else None,
        status=OK,
        latency_ms=latency,
        metrics=metrics,
        timestamp=oss_v3.iso_time(first.get("timestamp")),
        git_revision=_string(first, "head_sha"),
        versions={
            name: item["version"]
            for name, item in dependencies.items()
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
            "benchmark": benchmark,
            "model": model,
            **({"texts": texts} if texts else {}),
            **{name: first[name] for name in _TIME_OF_JOB if name in first},
        },
    )


def _string(holder: Mapping[str, Any], name: str) -> str | None:
    value = holder.get(name)
    return value if isinstance(value, str) and value else None
