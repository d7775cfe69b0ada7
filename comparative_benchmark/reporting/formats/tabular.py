"""CSV and Parquet: one row per result, for spreadsheets and data frames."""

import io
from collections.abc import Sequence
from typing import get_type_hints

from msgspec.structs import asdict

from comparative_benchmark.reporting.formats.interface import Exported, json_line, remarks_on
from comparative_benchmark.reporting.history.rows import FormatError, PortableResult
from comparative_benchmark.reporting.writers import write_csv, write_parquet
from openxla.benchmark.installation import install_command

COLUMNS = get_type_hints(PortableResult)


def export_csv(results: Sequence[PortableResult]) -> Exported:
    """Returns a CSV file; cells with lists and maps hold JSON."""
    text = io.StringIO(newline="")
    write_csv(text, COLUMNS, map(asdict, results), nested=json_line)
    return Exported(
        files={"": text.getvalue().encode()},
        remarks=remarks_on(results, "lists and maps are stored as JSON"),
    )


def export_parquet(results: Sequence[PortableResult]) -> Exported:
    """Returns a Parquet file with typed columns; samples are lists of lists of doubles.

    Raises:
      FormatError: pyarrow is not installed.
    """
    buffer = io.BytesIO()
    rows = map(asdict, results)
    try:
        write_parquet(
            buffer, COLUMNS, rows, nested=json_line, compression="zstd", group_rows=1 << 20
        )
    except ImportError as error:
        raise FormatError(f"Parquet requires pyarrow; run {install_command('history')}") from error
    return Exported(
        files={"": buffer.getvalue()},
        remarks=remarks_on(results, "'host' and 'extra' are JSON strings"),
    )
