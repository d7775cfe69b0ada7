"""CSV and Parquet files of typed rows, for spreadsheets and data frames.

Each row maps names of columns to values. Types are the annotations of a row's class, as
`typing.get_type_hints` returns them.
"""

import csv
import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any

# Characters with which a spreadsheet formula may begin.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def spreadsheet_text(text: str) -> str:
    """Returns a text that spreadsheets do not run as a formula, with an apostrophe if needed."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_csv(
    file: IO[str],
    columns: Iterable[str],
    rows: Iterable[Mapping[str, Any]],
    *,
    nested: Callable[[Any], str] = json.dumps,
) -> None:
    """Writes a header and one line per row; `nested` encodes lists and maps."""

    def cell(value: Any) -> Any:
        if isinstance(value, str):
            return spreadsheet_text(value)
        if isinstance(value, list | tuple | dict):
            return nested(value)
        return value.isoformat() if isinstance(value, datetime.datetime) else value

    writer = csv.writer(file, lineterminator="\n")
    names = list(columns)
    writer.writerow(names)
    # The writer keeps every digit of a float.
    writer.writerows([cell(row[name]) for name in names] for row in rows)


def write_parquet(
    file: Path | IO[bytes],
    columns: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    *,
    nested: Callable[[Any], str] = json.dumps,
    compression: str = "snappy",
    group_rows: int = 10_000,
) -> None:
    """Writes typed columns.

    Args:
      file: path or open file.
      columns: types by name. Maps with values of any type are strings, encoded by `nested`.
      rows: rows in the order of the file.
      nested: encoder of such maps.
      compression: codec of the columns.
      group_rows: rows per row group, which are held in memory.

    Raises:
      ModuleNotFoundError: pyarrow is not installed.
      OSError: the file cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    text, number = pa.string(), pa.float64()
    types: dict[Any, Any] = {
        str: text,
        str | None: text,
        int | None: pa.int64(),
        float | None: number,
        int | float | None: number,
        datetime.datetime: pa.timestamp("us", tz="UTC"),
        tuple[str, ...]: pa.list_(text),
        tuple[int | float, ...]: pa.list_(number),
        tuple[tuple[float, ...], ...]: pa.list_(pa.list_(number)),
        dict[str, str]: pa.map_(text, text),
        dict[str, int | float]: pa.map_(text, number),
        dict[str, Any]: text,
    }
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])

    def value(kind: Any, item: Any) -> Any:
        if kind == dict[str, Any]:
            return nested(item)
        return list(item.items()) if isinstance(item, dict) else item

    remaining = iter(rows)
    with parquet.ParquetWriter(file, schema, compression=compression) as writer:
        while group := list(islice(remaining, group_rows)):
            typed = [{n: value(kind, row[n]) for n, kind in columns.items()} for row in group]
            writer.write_table(pa.Table.from_pylist(typed, schema=schema))
