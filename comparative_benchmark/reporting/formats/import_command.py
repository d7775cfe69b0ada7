"""`cbs import`: adds results of other tools to the history."""

import argparse
import json
import sys
from pathlib import Path

from comparative_benchmark.reporting.formats.registry import read_file
from comparative_benchmark.reporting.formats.source import printable
from comparative_benchmark.reporting.history.portable import Contents
from comparative_benchmark.terminal.options import EXIT_FAILED, EXIT_MISSING, EXIT_OK, UsageError
from openxla.benchmark.extras import install_command


def run(options: argparse.Namespace) -> int:
    """Imports the files.

    Returns:
      0 if everything was read, 3 if a part was refused, 1 if nothing could be read.

    Raises:
      UsageError: the history cannot be opened or written.
    """
    if options.dry_run:
        return _dry_run(options)
    # SQL is imported only when needed.
    try:
        from comparative_benchmark.reporting.history.database import Database, HistoryError
        from comparative_benchmark.reporting.history.writing import import_files
    except ModuleNotFoundError as error:
        raise UsageError(f"the history needs {error.name}: {install_command('history')}") from error
    try:
        database = Database(options.db)
        try:
            imported = import_files(
                database, lambda path: _read(path, options.format), options.files
            )
        finally:
            database.close()
    except HistoryError as error:
        raise UsageError(str(error)) from error
    for sentence in imported.refused:
        _tell(f"refused: {sentence}")
    new, known = imported.written.added, imported.written.known
    _tell(
        f"{new} new and {known} known results from {imported.files} "
        f"file{'' if imported.files == 1 else 's'}: {database}"
    )
    return _exit_code(new + known, len(imported.refused))


def _dry_run(options: argparse.Namespace) -> int:
    read = refused = 0
    for path in options.files:
        contents = _read(path, options.format)
        for sentence in contents.refused:
            _tell(f"refused: {sentence}")
        for result in contents.results:
            print(json.dumps(result.as_json(), ensure_ascii=False, allow_nan=False))
        read += len(contents.results)
        refused += len(contents.refused)
    _tell(f"{read} results read, nothing stored")
    return _exit_code(read, refused)


def _read(path: Path, name: str) -> Contents:
    contents = read_file(path, name)
    if contents.skipped:
        _tell(f"{path}: {contents.skipped} configurations are marked as not run")
    return contents


def _exit_code(read: int, refused: int) -> int:
    if not refused:
        return EXIT_OK
    return EXIT_MISSING if read else EXIT_FAILED


def _tell(sentence: str) -> None:
    print(f"cbs import: {printable(sentence)}", file=sys.stderr)
