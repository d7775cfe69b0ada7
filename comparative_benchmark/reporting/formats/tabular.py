"""CSV and Parquet: one row per result, for spreadsheets and data frames."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any, get_type_hints

from comparative_benchmark.reporting.formats.interface import Exported, json_line, remarks_on
from comparative_benchmark.reporting.history.rows import (
    FormatError,
    PortableResult,
    spreadsheet_text,
)
from openxla.benchmark.installation import install_command

_DOCUMENTS = ("versions", "host", "metrics", "extra")
_LISTS = ("tags", "options", "samples_ms", "compile_ms", "warm_compile_ms")
FIELDS = PortableResult.__struct_fields__


def export_csv(results: Sequence[PortableResult]) -> Exported:
    """Returns a CSV file; cells with lists and maps hold JSON."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FIELDS)
    for result in results:
        writer.writerow([_cell(name, getattr(result, name)) for name in FIELDS])
    return Exported(
        files={"": text.getvalue().encode()},
        remarks=remarks_on(results, "lists and maps are stored as JSON"),
    )


def export_parquet(results: Sequence[PortableResult]) -> Exported:
    """Returns a Parquet file with typed columns; samples are lists of lists of doubles.

    Raises:
      FormatError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise FormatError(f"Parquet needs pyarrow: {install_command('history')}") from error
    text, numbers = pa.string(), pa.list_(pa.float64())
    types: dict[Any, Any] = {
        str: text,
        str | None: text,
        int | None: pa.int64(),
        int | float | None: pa.float64(),
        tuple[str, ...]: pa.list_(text),
        tuple[int | float, ...]: numbers,
        tuple[tuple[float, ...], ...]: pa.list_(numbers),
        dict[str, str]: pa.map_(text, text),
        dict[str, int | float]: pa.map_(text, pa.float64()),
        # Any JSON value.
        dict[str, Any]: text,
    }
    hints = get_type_hints(PortableResult)
    schema = pa.schema([(name, types[hints[name]]) for name in FIELDS])
    rows = [{name: _column(name, getattr(result, name)) for name in FIELDS} for result in results]
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), buffer, compression="zstd")
    return Exported(
        files={"": buffer.getvalue()},
        remarks=remarks_on(results, "'host' and 'extra' are JSON strings"),
    )


def _column(name: str, value: Any) -> Any:
    if name in ("host", "extra"):
        return json_line(value)
    return list(value.items()) if isinstance(value, dict) else value


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in _DOCUMENTS:
        return json_line(value)
    if name in _LISTS:
        return json.dumps(value, ensure_ascii=False)
    # repr keeps every digit of a float.
    return spreadsheet_text(value) if isinstance(value, str) else repr(value)
