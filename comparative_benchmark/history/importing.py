"""Files of any format into the history: what can be read is kept, the rest is named."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.history.database import Database
from comparative_benchmark.history.rows import Importer, Refusal, Row
from comparative_benchmark.history.writing import Writer, Written


@attrs.frozen(kw_only=True)
class Imported:
    """What came of an import.

    Attributes:
      files: with at least one result.
      written: rows that were new, and rows that were known.
      refused: what could not be read, file by file, in order.
    """

    files: int
    written: Written
    refused: Sequence[Refusal]


def import_files(database: Database, importer: Importer, paths: Iterable[Path]) -> Imported:
    """Adds all results of the files that are not in the history yet.

    Raises:
      HistoryError: the database fails; what was written until then is kept.
    """
    refused: list[Refusal] = []
    fruitful: set[Path] = set()

    def rows() -> Iterator[Row]:
        for path in paths:
            for item in importer.rows(path):
                if isinstance(item, Refusal):
                    refused.append(item)
                else:
                    fruitful.add(path)
                    yield item

    written = Writer(database).add(rows())
    return Imported(files=len(fruitful), written=written, refused=refused)
