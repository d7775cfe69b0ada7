"""Writers that several commands share: CSV, Parquet, and TorchBench's regression file.

A table consists of rows that map names of columns to values. Types of columns are the annotations
of the rows' class, as `typing.get_type_hints` returns them.
"""

import csv
import datetime
import json
import math
import re
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


# Words that YAML reads as a boolean or null.
_NO_PLAIN_KEY = ("yes", "off", "true", "false", "null")
# YAML limits a key on the line of its value to 1024 characters.
_LONGEST_KEY = 1000


def regression_document(
    name: str,
    *,
    control_env: Mapping[str, Any],
    treatment_env: Mapping[str, Any],
    details: Mapping[str, Mapping[str, Any]],
    control_only: Mapping[str, Any],
    treatment_only: Mapping[str, Any],
    bisection: str | None,
) -> dict[str, Any]:
    """Returns the content of `regression-*.yaml`, the file that TorchBench's bisection reads.

    Args:
      name: name of the benchmark.
      control_env: versions and revision of the last good state.
      treatment_env: the same of the first bad state.
      details: `control`, `treatment` and `delta` of each changed metric.
      control_only: metrics that are missing from the bad state.
      treatment_only: metrics that are new in it.
      bisection: repository to bisect, or the package that probably caused the change.
    """
    return {
        "name": name,
        "control_env": dict(control_env),
        "treatment_env": dict(treatment_env),
        "details": dict(details),
        "control_only_metrics": dict(control_only),
        "treatment_only_metrics": dict(treatment_only),
        "bisection": bisection,
        "bisection_mode": "bisect",
        "bisection_config_file_path": None,
    }


def as_yaml(document: Mapping[str, Any]) -> str:
    """Returns block-style YAML; strings are quoted as in JSON, which YAML reads alike."""
    return "".join(f"{line}\n" for line in _lines(document))


def _lines(document: Mapping[str, Any], indent: str = "") -> list[str]:
    lines = []
    for name, value in document.items():
        plain = re.fullmatch("[a-z][a-z_]{2,}", name) and name not in _NO_PLAIN_KEY
        key = name if plain else _quoted(name)
        if len(key) > _LONGEST_KEY:
            key = f"? {key}\n{indent}"
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{key}:", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {_quoted(value)}")
    return lines


def _quoted(value: Any) -> str:
    """Returns a value as JSON that is also YAML."""
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{value}".replace("inf", ".inf")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # YAML has one escape for a character beyond 16 bits; JSON has two.
    return re.sub(r"[^\x20-\x7e]", lambda match: f"\\U{ord(match[0]):08x}", text)
