"""CSV and Parquet: a row for each result, for spreadsheets and data frames."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from comparative_benchmark.formats.exported import Exported, json_line, remarks_on
from comparative_benchmark.formats.result import FormatError, Result

_DOCUMENTS = ("versions", "host", "metrics", "extra")
_LISTS = ("tags", "options", "samples_ms", "compile_ms", "warm_compile_ms")
FIELDS = tuple(field.name for field in attrs.fields(Result))


def export_csv(results: Sequence[Result]) -> Exported:
    """Returns a CSV file; lists and maps stand as JSON in their cells."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FIELDS)
    for result in results:
        writer.writerow([_cell(name, getattr(result, name)) for name in FIELDS])
    return Exported(
        files={"": text.getvalue().encode()},
        remarks=remarks_on(results, "lists and maps are JSON in their cells"),
    )


def export_parquet(results: Sequence[Result]) -> Exported:
    """Returns a Parquet file with typed columns; samples are lists of lists of doubles.

    Raises:
      FormatError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise FormatError(
            "Parquet needs pyarrow: pip install 'common-benchmark-suite[history]'"
        ) from error
    times = pa.list_(pa.float64())
    types: dict[Any, Any] = {
        str: pa.string(),
        str | None: pa.string(),
        int | None: pa.int64(),
        float | None: pa.float64(),
        tuple[str, ...]: pa.list_(pa.string()),
        tuple[float, ...]: times,
        tuple[tuple[float, ...], ...]: pa.list_(times),
        Mapping[str, str]: pa.map_(pa.string(), pa.string()),
        Mapping[str, float]: pa.map_(pa.string(), pa.float64()),
        # Anything that is JSON: a text.
        Mapping[str, Any]: pa.string(),
    }
    schema = pa.schema([(field.name, types[field.type]) for field in attrs.fields(Result)])
    rows = [
        {
            name: list(value.items()) if pa.types.is_map(schema.field(name).type) else value
            for name, value in _row(result).items()
        }
        for result in results
    ]
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), buffer, compression="zstd")
    return Exported(
        files={"": buffer.getvalue()},
        remarks=remarks_on(results, "'host' and 'extra' are JSON texts"),
    )


def _row(result: Result) -> dict[str, Any]:
    return {
        name: json_line(value) if name in ("host", "extra") else value
        for name in FIELDS
        for value in (_plain(getattr(result, name)),)
    }


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in _DOCUMENTS:
        return json_line(value)
    if name in _LISTS:
        return json.dumps(_plain(value), ensure_ascii=False)
    # repr keeps every digit of a float.
    return value if isinstance(value, str) else repr(value)
