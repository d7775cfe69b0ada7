"""Google Benchmark's JSON, also written by `iree-benchmark-module --benchmark_format=json`.

Each process is a repetition: its `real_time` is the mean of its iterations. Failures have
`error_occurred` and no time, so that no reader can rank them.
"""

import datetime
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw

from comparative_benchmark.reporting.formats.interface import (
    CARRIER,
    Exported,
    Part,
    Source,
    carried,
    json_file,
    numbers,
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
    portable_result,
    zoned_time,
)
from comparative_benchmark.results.record import NonNegative

_TO_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
# Fields of an entry that are not counters.
_FIELDS = frozenset(
    (
        *("name", "family_index", "per_family_instance_index", "run_name", "run_type"),
        *("repetitions", "repetition_index", "threads", "aggregate_name", "aggregate_unit"),
        *("error_occurred", "error_message", "skipped", "skip_message", "iterations"),
        *("real_time", "cpu_time", "time_unit", "label", "cpu_coefficient", "real_coefficient"),
        *("big_o", "rms", "allocs_per_iter", "max_bytes_used"),
    )
)


def export(results: Sequence[PortableResult]) -> Exported:
    """Returns the JSON of one run.

    Raises:
      FormatError: there are several runs, or duplicate names.
    """
    one_run(results, "a Google Benchmark file")
    unique((_name(result) for result in results), "Google Benchmark's JSON")
    entries = [entry for result in results for entry in _entries(result)]
    document = {"context": _context(results), "benchmarks": entries, CARRIER: carried(results)}
    unknown = sum(bool(r.samples_ms) and r.cpu_wall_ratio is None for r in results)
    without_cpu = [f"results without CPU time ('cpu_time' is 0): {unknown}"] if unknown else []
    return Exported(
        files={"": json_file(document)},
        remarks=remarks_on(
            results,
            "'real_time' is the mean over a process's iterations, as the format requires; "
            f"estimates with intervals, samples and statuses are in {CARRIER!r}",
            *without_cpu,
        ),
    )


class _File(msgspec.Struct):
    context: dict[str, Any]
    benchmarks: Raw
    common_benchmark_suite: Raw = Raw()


class _Name(msgspec.Struct):
    name: str = ""
    run_name: str | None = None
    aggregate_name: str | None = None


class _Entry(msgspec.Struct):
    run_type: str = "iteration"
    aggregate_name: str | None = None
    error_occurred: bool = False
    error_message: str | None = None
    skipped: bool = False
    skip_message: str | None = None
    real_time: NonNegative | None = None
    cpu_time: NonNegative | None = None
    time_unit: Literal["ns", "us", "ms", "s"] = "ns"

    def ms(self, value: float) -> float:
        """Returns one of the entry's times in ms."""
        return value * _TO_MS[self.time_unit]


def read(source: Source) -> Contents:
    """Returns the results of a file; if it carries exact results, those.

    Raises:
      FormatError: the file is not Google Benchmark JSON.
    """
    what = "Google Benchmark JSON"
    document = source.decoded(_File, what)
    benchmarks = source.part(document.benchmarks)
    try:
        parts = list(benchmarks.items())
    except FormatError as error:
        raise FormatError(f"{benchmarks}: not {what}: {error}") from error
    if carrier := document.common_benchmark_suite:
        entries = [part.decoded(Any) for part in parts]
        return read_carrier(source.part(carrier), lambda results: _faults(results, entries))
    groups: dict[str, list[Part]] = {}
    results, refused = [], []
    for part in parts:
        try:
            entry = part.decoded(_Name)
            if not entry.run_name and not entry.name:
                raise FormatError("missing name")
            # These describe how a family of benchmarks scales.
            if entry.aggregate_name in ("BigO", "RMS"):
                continue
            groups.setdefault(entry.run_name or entry.name, []).append(part)
        except FormatError as error:
            refused.append(f"{part}: {error}")
    for name, members in groups.items():
        try:
            results.append(_foreign(name, members, document.context))
        except FormatError as error:
            refused.append(f"{members[0]}: {name}: {error}")
    return Contents(tuple(results), tuple(refused))


def matches(document: Any) -> bool:
    """Returns whether a JSON document looks like Google Benchmark's."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("context"), dict)
        and isinstance(document.get("benchmarks"), list)
    )


def _name(result: PortableResult) -> str:
    return "/".join(filter(None, (result.case, result.competitor, result.device)))


def _entries(result: PortableResult) -> list[dict[str, Any]]:
    name = _name(result)
    entry: dict[str, Any] = {"name": name, "run_name": name, "run_type": "iteration"}
    if result.status != OK:
        failure = {"error_occurred": True, "error_message": result.why, "label": result.status}
        return [entry | {"repetitions": 1, "repetition_index": 0, "threads": 1} | failure]
    counters = {
        "latency_ms": result.latency_ms,
        "latency_low_ms": result.latency_low_ms,
        "latency_high_ms": result.latency_high_ms,
        "compile_ms": statistics.median(result.compile_ms) if result.compile_ms else None,
        "host_memory_peak_mb": result.host_memory_peak_mb,
        "device_memory_peak_mb": result.device_memory_peak_mb,
        "relative_rmse": result.relative_rmse,
    }
    repetitions = result.samples_ms or (
        ((result.latency_ms,),) if result.latency_ms is not None else ()
    )
    return [
        entry
        | {
            "repetitions": len(repetitions),
            "repetition_index": index,
            "threads": 1,
            "iterations": len(samples),
            "real_time": statistics.fmean(samples),
            "cpu_time": statistics.fmean(samples) * (result.cpu_wall_ratio or 0.0),
            "time_unit": "ms",
            **{key: value for key, value in counters.items() if value is not None},
            "label": result.status,
        }
        for index, samples in enumerate(repetitions)
    ]


def _context(results: Sequence[PortableResult]) -> dict[str, Any]:
    host = next((result.host for result in results if result.host), {})
    timestamp = next((result.timestamp for result in results if result.timestamp), None)
    context = {
        "date": timestamp or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host_name": str(host.get("hostname") or ""),
        "executable": "cbs",
        "num_cpus": host.get("logical_cpus") or 0,
        "caches": [],
        "load_avg": list(host.get("load_average") or []),
    }
    # Omitted if the system does not report it, as in the library itself.
    if host.get("governor"):
        context["cpu_scaling_enabled"] = host["governor"] != "performance"
    return context


def _faults(results: Sequence[PortableResult], entries: Sequence[Any]) -> list[str | None]:
    present: dict[str, list[Any]] = {}
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            present.setdefault(entry["name"], []).append(entry)
    return [
        None
        if present.get(_name(result), []) == _entries(result)
        else f"its entries in 'benchmarks' differ from {CARRIER}"
        for result in results
    ]


def _foreign(name: str, parts: Sequence[Part], context: Mapping[str, Any]) -> PortableResult:
    entries = [part.decoded(_Entry) for part in parts]
    plain = [part.decoded(dict[str, Any]) for part in parts]
    failures = [
        entry.error_message or entry.skip_message or "no message"
        for entry in entries
        if entry.error_occurred or entry.skipped
    ]
    usable = [
        (entry, raw)
        for entry, raw in zip(entries, plain, strict=True)
        if entry.real_time is not None and entry.run_type == "iteration" and not failures
    ]
    iterations, repetitions = [entry for entry, _ in usable], [raw for _, raw in usable]
    real_ms = [e.ms(e.real_time) for e in iterations if e.real_time is not None]
    cpu_ms = [e.ms(e.cpu_time) for e in iterations if e.cpu_time is not None]
    if not real_ms and not failures:
        position, real_ms = _aggregate(entries)
        repetitions = [plain[position]]
    counters = _counters(repetitions or plain)
    return portable_result(
        case=name,
        backend="google_benchmark",
        status="failed" if failures else OK,
        reason=failures[0] if failures else None,
        latency_ms=statistics.median(real_ms) if real_ms else None,
        metrics=counters | ({"cpu_time_ms": statistics.median(cpu_ms)} if cpu_ms else {}),
        timestamp=_date(context),
        host={
            ours: context[theirs]
            for ours, theirs in (("hostname", "host_name"), ("logical_cpus", "num_cpus"))
            if isinstance(context.get(theirs), (str, int))
        },
        extra={
            "context": {key: value for key, value in context.items() if key != "caches"},
            "repetitions_ms": real_ms,
            "iterations": [entry["iterations"] for entry in repetitions if "iterations" in entry],
            "labels": sorted({str(entry["label"]) for entry in plain if "label" in entry}),
        },
    )


def _aggregate(entries: Sequence[_Entry]) -> tuple[int, list[float]]:
    """Returns position and time of the median, or else the mean, in a file of aggregates."""
    for wanted in ("median", "mean"):
        for position, entry in enumerate(entries):
            if entry.aggregate_name == wanted and entry.real_time is not None:
                return position, [entry.ms(entry.real_time)]
    raise FormatError("no real_time in an iteration, median or mean entry")


def _counters(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    known: dict[str, list[float]] = {}
    for entry in entries:
        for name, value in numbers(entry).items():
            known.setdefault(name, []).append(value)
    return {name: statistics.median(known[name]) for name in sorted(known.keys() - _FIELDS)}


def _date(context: Mapping[str, Any]) -> str | None:
    # Old versions of the library write no time zone.
    moment = zoned_time(str(context.get("date")))
    return moment.isoformat() if moment else None
