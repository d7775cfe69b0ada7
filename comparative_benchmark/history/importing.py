"""Files of any format into the history: what can be read is kept, the rest is named."""

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.history.database import Database
from comparative_benchmark.history.portable import Contents
from comparative_benchmark.history.rows import Row, RowError, row_of
from comparative_benchmark.history.writing import Writer, Written


@attrs.frozen(kw_only=True)
class Imported:
    """What came of an import.

    Attributes:
      files: with at least one result.
      written: rows that were new, and rows that were known.
      refused: a sentence for each file, or part of one, that could not be read.
    """

    files: int
    written: Written
    refused: Sequence[str]


def import_files(
    database: Database, read: Callable[[Path], Contents], paths: Iterable[Path]
) -> Imported:
    """Adds all results of the files that are not in the history yet.

    Args:
      database: of the history.
      read: returns what a file holds; raises nothing for its content.
      paths: of the files.

    Raises:
      HistoryError: the database fails; what was written until then is kept.
    """
    refused: list[str] = []
    fruitful: set[Path] = set()

    def rows() -> Iterator[Row]:
        for path in paths:
            found, wrong = rows_of(path, read(path))
            refused.extend(wrong)
            if found:
                fruitful.add(path)
            yield from found

    written = Writer(database).add(rows())
    return Imported(files=len(fruitful), written=written, refused=refused)


def rows_of(path: Path, contents: Contents) -> tuple[list[Row], list[str]]:
    """Returns the rows of a file, and a sentence for each part of it that has none."""
    rows, refused = [], list(contents.refused)
    for result in contents.results:
        # The file's own time, where nothing in it tells one.
        time = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
        try:
            rows.append(row_of(result, time=time))
        except RowError as error:
            refused.append(f"{path}: {result.name}: {error}")
    return rows, refused
