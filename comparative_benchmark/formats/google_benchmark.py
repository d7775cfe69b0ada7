"""Google Benchmark's JSON, which `iree-benchmark-module --benchmark_format=json` writes, too.

A process is a repetition there: its `real_time` is the mean of its iterations. What failed has
`error_occurred` and no time at all, so that no reader can rank it.
"""

import datetime
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from comparative_benchmark.formats.carrier import is_carrier, read_carrier
from comparative_benchmark.formats.exported import (
    CARRIER,
    Exported,
    carried,
    json_file,
    one_run,
    remarks_on,
    unique,
)
from comparative_benchmark.formats.result import OK, FormatError, Result, number
from comparative_benchmark.formats.source import Imported, Source, field

_TO_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
# Fields of an entry that are no counters.
_FIELDS = frozenset(
    (
        *("name", "family_index", "per_family_instance_index", "run_name", "run_type"),
        *("repetitions", "repetition_index", "threads", "aggregate_name", "aggregate_unit"),
        *("error_occurred", "error_message", "skipped", "skip_message", "iterations"),
        *("real_time", "cpu_time", "time_unit", "label", "cpu_coefficient", "real_coefficient"),
        *("big_o", "rms", "allocs_per_iter", "max_bytes_used"),
    )
)


def export(results: Sequence[Result]) -> Exported:
    """Returns the JSON of one run.

    Raises:
      FormatError: there are several runs, or two results of one name.
    """
    one_run(results, "a Google Benchmark file")
    unique((_name(result) for result in results), "Google Benchmark's JSON")
    entries = [entry for result in results for entry in _entries(result)]
    document = {
        "context": _context(results),
        "benchmarks": entries,
        CARRIER: carried(results),
    }
    unknown = sum(bool(r.samples_ms) and r.cpu_wall_ratio is None for r in results)
    without_cpu = [f"{unknown} results have no CPU time: 0 stands there"] if unknown else []
    return Exported(
        files={"": json_file(document)},
        remarks=remarks_on(
            results,
            "'real_time' is the mean of a process's iterations, as the format has it; the "
            f"estimates with their intervals, samples and statuses are in {CARRIER!r}",
            *without_cpu,
        ),
    )


def read(source: Source) -> Imported:
    """Returns the results of a file; those that it carries exactly, if any.

    Raises:
      FormatError: it is no JSON of Google Benchmark.
    """
    document = source.json()
    try:
        context = field(document, "context", dict)
        entries = field(document, "benchmarks", list)
    except FormatError as error:
        raise FormatError(f"{source.at()}: no JSON of Google Benchmark: {error}") from error
    if is_carrier(document):
        return read_carrier(source, document, lambda results: _faults(results, entries))
    groups: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    refused = []
    for position, entry in enumerate(entries):
        try:
            name = field(entry, "run_name", str, optional=True) or field(entry, "name", str)
            groups.setdefault(name, []).append((position, entry))
        except FormatError as error:
            refused.append(f"{source.at('benchmarks', position)}: {error}")
    results = []
    for name, members in groups.items():
        try:
            results.append(_foreign(name, [entry for _, entry in members], context))
        except FormatError as error:
            refused.append(f"{source.at('benchmarks', members[0][0])}: {name}: {error}")
    return Imported(tuple(results), tuple(refused))


def matches(document: Any) -> bool:
    """Tells whether a JSON document looks like one of Google Benchmark."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("context"), dict)
        and isinstance(document.get("benchmarks"), list)
    )


def _name(result: Result) -> str:
    return "/".join(filter(None, (result.case, result.competitor, result.device)))


def _entries(result: Result) -> list[dict[str, Any]]:
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


def _context(results: Sequence[Result]) -> dict[str, Any]:
    host = next((result.host for result in results if result.host), {})
    timestamp = next((result.timestamp for result in results if result.timestamp), None)
    found = {
        "date": timestamp or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host_name": str(host.get("hostname") or ""),
        "executable": "cbs",
        "num_cpus": host.get("logical_cpus") or 0,
        "caches": [],
        "load_avg": list(host.get("load_average") or []),
    }
    # Left out where the system does not tell, as the library itself does.
    if host.get("governor"):
        found["cpu_scaling_enabled"] = host["governor"] != "performance"
    return found


def _faults(results: Sequence[Result], entries: Sequence[Any]) -> list[str | None]:
    present: dict[str, list[Any]] = {}
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            present.setdefault(entry["name"], []).append(entry)
    return [
        None
        if present.get(_name(result), []) == _entries(result)
        else f"its entries in 'benchmarks' are not what {CARRIER} says"
        for result in results
    ]


def _foreign(name: str, entries: Sequence[Mapping[str, Any]], context: Mapping[str, Any]) -> Result:
    failures = [
        str(entry.get("error_message") or entry.get("skip_message") or "no message")
        for entry in entries
        if entry.get("error_occurred") or entry.get("skipped")
    ]
    timed = [entry for entry in entries if "real_time" in entry and not failures]
    repeated = [e for e in timed if e.get("run_type", "iteration") == "iteration"]
    real_ms = [_time_ms(entry, "real_time") for entry in repeated]
    cpu_ms = [_time_ms(entry, "cpu_time") for entry in repeated if "cpu_time" in entry]
    if not real_ms and not failures:
        real_ms = _aggregate(timed)
    counters = _counters(repeated or entries)
    return Result(
        case=name,
        backend="google_benchmark",
        device=None,
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
            "iterations": [e["iterations"] for e in repeated if "iterations" in e],
            "labels": sorted({str(e["label"]) for e in entries if "label" in e}),
        },
    )


def _time_ms(entry: Mapping[str, Any], name: str) -> float:
    unit = entry.get("time_unit", "ns")
    if not isinstance(unit, str) or unit not in _TO_MS:
        raise FormatError(f"time_unit {ascii(unit)[:30]} is none of {', '.join(_TO_MS)}")
    value = number(name, entry[name]) * _TO_MS[unit]
    if value < 0:
        raise FormatError(f"{name} is below 0")
    return value


def _aggregate(entries: Sequence[Mapping[str, Any]]) -> list[float]:
    """Returns the median, or else the mean, of a file with aggregates alone."""
    for wanted in ("median", "mean"):
        for entry in entries:
            if entry.get("aggregate_name") == wanted:
                return [_time_ms(entry, "real_time")]
    raise FormatError("no time: neither iterations, nor their median or mean")


def _counters(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = {name for entry in entries for name in entry} - _FIELDS
    found = {}
    for name in sorted(names):
        values = [
            number(name, entry[name])
            for entry in entries
            if isinstance(entry.get(name), (int, float)) and not isinstance(entry[name], bool)
        ]
        if values:
            found[name] = statistics.median(values)
    return found


def _date(context: Mapping[str, Any]) -> str | None:
    try:
        moment = datetime.datetime.fromisoformat(context.get("date"))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    # Old versions of the library tell no zone.
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).isoformat()
