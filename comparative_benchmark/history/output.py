"""Results of a query as a table, CSV, JSON or Parquet."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from comparative_benchmark.history.portable import spreadsheet_text
from comparative_benchmark.history.queries import COLUMNS, Record, Series
from comparative_benchmark.history.rows import DIMENSIONS, METRICS
from comparative_benchmark.stats.analysis import WITHIN_ONE_PROCESS

FORMATS = ("table", "csv", "json", "parquet")
_BATCH = 10_000
_COUNTS = ("batch_size", "threads", "processes")
_NUMBERS = (*METRICS, "latency_low_ms", "latency_high_ms")


def write_csv(records: Iterable[Record], file: IO[str]) -> None:
    """Writes a line a result, every column; what is not a plain value is JSON."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        writer.writerow([_cell(record[name]) for name in COLUMNS])


def write_json(records: Iterable[Record], file: IO[str]) -> None:
    """Writes a list of objects, one a line."""
    separator = "[\n"
    for record in records:
        file.write(separator + json.dumps(_json_values(record), allow_nan=False))
        separator = ",\n"
    file.write("[]\n" if separator == "[\n" else "\n]\n")


def write_parquet(records: Iterable[Record], path: Path) -> None:
    """Writes a column for each column; versions are a map, options a list, `extra` is JSON.

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


def print_records(records: Iterable[Record], console: Console) -> None:
    """Prints the columns that a person looks at first."""
    table = _table("time", "workload", "competitor", "framework", "device", "status")
    for name in ("latency ms", "compile ms", "memory MB", "error"):
        table.add_column(name, justify="right")
    for record in records:
        table.add_row(
            f"{record['time']:%Y-%m-%d %H:%M}",
            Text(record["workload"]),
            Text(competitor(record)),
            Text(record["framework"]),
            Text(record["device"]),
            Text(record["status"], style="" if record["status"] == "ok" else "red"),
            _interval(record),
            digits(record["compile_ms"]),
            digits(record["host_memory_mb"]),
            digits(record["error"]),
        )
    console.print(table)


def print_series(found: Sequence[Series], console: Console) -> None:
    """Prints a line a trend."""
    table = _table("workload", "competitor", "framework", "device", "machine")
    for name in ("results", "first", "last"):
        table.add_column(name, justify="right")
    table.add_column("last status")
    for item in found:
        names = item.dimensions
        table.add_row(
            *(Text(names["workload"]), Text(competitor(names)), Text(names["framework"])),
            *(Text(names["device"]), Text(names["machine"]), str(item.results)),
            *(f"{item.first:%Y-%m-%d}", f"{item.last:%Y-%m-%d}"),
            Text(item.last_status, style="" if item.last_status == "ok" else "red"),
        )
    console.print(table)


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
    """Returns a number with so many significant digits; `-` for None."""
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


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


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
