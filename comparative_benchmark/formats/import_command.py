"""`cbs import`: results of other tools into the history."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from comparative_benchmark.formats.checks import printable
from comparative_benchmark.formats.rows import FormatImporter, read_file
from comparative_benchmark.history.rows import Refusal
from comparative_benchmark.terminal.options import EXIT_FAILED, EXIT_MISSING, EXIT_OK, UsageError


def run(options: argparse.Namespace) -> int:
    """Imports the files.

    Returns:
      0 if all was read, 3 if some was refused, 1 if nothing could be read at all.

    Raises:
      UsageError: the history can not be opened or written.
    """
    if options.dry_run:
        return _dry_run(options)
    # SQL is loaded only by those who want it.
    try:
        from comparative_benchmark.history.database import Database, HistoryError
        from comparative_benchmark.history.importing import import_files
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the history needs {error.name}: pip install 'common-benchmark-suite[history]'"
        ) from error
    importer = FormatImporter(options.format, told=_tell)
    try:
        database = Database(options.db)
        try:
            imported = import_files(database, importer, options.files)
        finally:
            database.close()
    except HistoryError as error:
        raise UsageError(str(error)) from error
    for refusal in imported.refused:
        _tell(f"refused: {refusal}")
    new, known = imported.written.added, imported.written.known
    _tell(f"{new} new results and {known} known ones of {imported.files} files in {database}")
    return _exit_code(new + known, len(imported.refused))


def _dry_run(options: argparse.Namespace) -> int:
    read = refused = 0
    for path in options.files:
        for item in _items(path, options.format):
            if isinstance(item, Refusal):
                refused += 1
                _tell(f"refused: {item}")
            else:
                read += 1
                print(item)
    _tell(f"{read} results read, nothing kept")
    return _exit_code(read, refused)


def _items(path: Path, name: str) -> Iterator[Refusal | str]:
    for item in read_file(path, name, told=_tell):
        if isinstance(item, Refusal):
            yield item
        else:
            yield json.dumps(item.as_json(), ensure_ascii=False, allow_nan=False)


def _exit_code(read: int, refused: int) -> int:
    if not refused:
        return EXIT_OK
    return EXIT_MISSING if read else EXIT_FAILED


def _tell(sentence: str) -> None:
    print(f"cbs import: {printable(sentence)}", file=sys.stderr)
