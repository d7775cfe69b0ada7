"""Prints query results as a table, CSV, JSON or Parquet."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from comparative_benchmark.analysis.stats.analysis import WITHIN_ONE_PROCESS
from comparative_benchmark.reporting.history.portable import spreadsheet_text
from comparative_benchmark.reporting.history.queries import COLUMNS, Record, Series
from comparative_benchmark.reporting.history.rows import DIMENSIONS, METRICS
from comparative_benchmark.terminal.screen import Column, fitted

FORMATS = ("table", "csv", "json", "parquet")
_BATCH = 10_000
_COUNTS = ("batch_size", "threads", "processes")
_NUMBERS = (*METRICS, "latency_low_ms", "latency_high_ms")


def write_csv(records: Iterable[Record], file: IO[str]) -> None:
    """Writes one line per result with all columns; nested values are JSON."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        writer.writerow([_cell(record[name]) for name in COLUMNS])


def write_json(records: Iterable[Record], file: IO[str]) -> None:
    """Writes a list of objects, one per line."""
    separator = "[\n"
    for record in records:
        file.write(separator + json.dumps(_json_values(record), allow_nan=False))
        separator = ",\n"
    file.write("[]\n" if separator == "[\n" else "\n]\n")


def write_parquet(records: Iterable[Record], path: Path) -> None:
    """Writes all columns; versions are a map, options a list, and `extra` is JSON.

    Raises:
      ModuleNotFoundError: pyarrow is not installed.
      OSError: the file cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(name, _arrow_type(pa, name)) for name in COLUMNS])
    with parquet.ParquetWriter(path, schema) as writer:
        for batch in _batches(records):
            columns = [
                pa.array([_arrow_value(name, item[name]) for item in batch], field.type)
                for name, field in zip(COLUMNS, schema, strict=True)
            ]
            writer.write_table(pa.table(columns, schema=schema))


def print_records(records: Iterable[Record], screen: Console) -> None:
    """Prints the most important columns, as many as fit."""
    rows = list(records)

    def column(heading: str, name: str, rank: int) -> Column:
        return Column(
            heading=heading, cells=[digits(row[name]) for row in rows], rank=rank, right=True
        )

    columns = [
        Column(heading="competitor", cells=[Text(competitor(row)) for row in rows]),
        Column(heading="time", cells=[f"{row['time']:%Y-%m-%d %H:%M}" for row in rows]),
        Column(heading="latency ms", cells=[_interval(row) for row in rows], right=True),
        Column(heading="status", cells=[_status(row["status"]) for row in rows], rank=1),
        column("compile ms", "compile_ms", 3),
        column("memory MB", "host_memory_mb", 4),
        column("error", "error", 2),
        Column(heading="framework", cells=[Text(row["framework"]) for row in rows], rank=5),
        Column(heading="device", cells=[Text(row["device"]) for row in rows], rank=6),
    ]
    _print(columns, [row["workload"] for row in rows], screen)


def print_series(found: Sequence[Series], screen: Console) -> None:
    """Prints one row per trend."""
    names = [item.dimensions for item in found]
    columns = [
        Column(heading="competitor", cells=[Text(competitor(name)) for name in names]),
        Column(heading="results", cells=[str(item.results) for item in found], right=True),
        Column(heading="first", cells=[f"{item.first:%Y-%m-%d}" for item in found], rank=1),
        Column(heading="last", cells=[f"{item.last:%Y-%m-%d}" for item in found]),
        Column(heading="last status", cells=[_status(item.last_status) for item in found]),
        Column(heading="framework", cells=[Text(name["framework"]) for name in names], rank=2),
        Column(heading="machine", cells=[Text(name["machine"]) for name in names], rank=3),
        Column(heading="device", cells=[Text(name["device"]) for name in names], rank=4),
    ]
    _print(columns, [name["workload"] for name in names], screen)


def _print(columns: Sequence[Column], workloads: Sequence[str], screen: Console) -> None:
    made = fitted(columns, screen.width, groups=workloads, group_heading="workload")
    screen.print(made.table)
    if made.dropped:
        screen.print(f"not shown: {', '.join(made.dropped)}")


def _status(status: str) -> Text:
    return Text(status, style="" if status == "ok" else "red")


def series_as_json(found: Sequence[Series]) -> str:
    """Returns a JSON list of the trends."""
    return json.dumps(
        [
            {
                **{name: item.dimensions[name] for name in DIMENSIONS},
                "results": item.results,
                "first": item.first.isoformat(),
                "last": item.last.isoformat(),
                "last_status": item.last_status,
            }
            for item in found
        ],
        indent=2,
    )


def competitor(record: Mapping[str, Any]) -> str:
    """Returns `backend:compiler+option@environment`; see `Row.competitor`."""
    compiler = "+".join([record["compiler"], *record["options"]])
    where = f"@{record['environment']}" if record["environment"] else ""
    return f"{record['backend']}:{compiler}{where}" if compiler else f"{record['backend']}{where}"


def digits(value: float | None, significant: int = 3) -> str:
    """Returns a number with `significant` significant digits; `-` for None."""
    if value is None:
        return "-"
    if abs(value) >= 10**significant:
        return f"{value:.0f}"
    return f"{value:#.{significant}g}".removesuffix(".")


def _interval(record: Record) -> str:
    if record["latency_low_ms"] is None:
        return digits(record["latency_ms"])
    low, high = digits(record["latency_low_ms"]), digits(record["latency_high_ms"])
    within = f" {WITHIN_ONE_PROCESS}" if record["processes"] == 1 else ""
    return f"{digits(record['latency_ms'])} ({low} to {high}{within})"


def _json_values(record: Record) -> Record:
    return {**record, "time": record["time"].isoformat()}


def _cell(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return json.dumps(value)
    if isinstance(value, str):
        return spreadsheet_text(value)
    return value.isoformat() if hasattr(value, "isoformat") else value


def _arrow_type(pa: Any, name: str) -> Any:
    if name == "time":
        return pa.timestamp("us", tz="UTC")
    if name in _NUMBERS:
        return pa.float64()
    if name in _COUNTS:
        return pa.int64()
    if name == "options":
        return pa.list_(pa.string())
    return pa.map_(pa.string(), pa.string()) if name == "versions" else pa.string()


def _arrow_value(name: str, value: Any) -> Any:
    if name == "versions":
        return list(value.items())
    return json.dumps(value) if name == "extra" else value


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    iterator = iter(records)
    while batch := list(islice(iterator, _BATCH)):
        yield batch
