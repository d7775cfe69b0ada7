"""`cbs export` and `cbs import`: results in the formats of other tools."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from comparative_benchmark.errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, UsageError
from comparative_benchmark.reporting.formats.interface import (
    Exported,
    exporter,
    printable,
    read_file,
)
from comparative_benchmark.reporting.history import results_files
from comparative_benchmark.reporting.history.rows import Contents, PortableResult
from comparative_benchmark.results.published import host_name, without_folders
from openxla.benchmark.files import write_atomically
from openxla.benchmark.installation import install_command

_LATEST = "latest"
_STANDARD_OUTPUT = "-"


def export(options: argparse.Namespace) -> int:
    """Writes the export; returns 0, or 3 if one of several files was omitted.

    Raises:
      UsageError: the format cannot distinguish the results, or the output cannot be written.
    """
    if Path(options.output).resolve() in {path.resolve() for path in options.results}:
        raise UsageError(f"-o {options.output} is one of the results files; choose another file")
    results, refused = _read_results(options.results)
    if refused and not results:
        raise UsageError(printable("; ".join(refused)))
    for sentence in refused:
        print(f"cbs export: skipped: {printable(sentence)}", file=sys.stderr)
    if options.run:
        results = of_run(results, options.run)
    if not results:
        raise UsageError("no results to export")
    if not options.with_host:
        results = [_published(result) for result in results]
    exported = exporter(options.format)(results)
    try:
        written = write(exported, options.output)
    except OSError as error:
        raise UsageError(f"{options.output} cannot be written: {error}") from error
    for remark in exported.remarks:
        print(printable(f"cbs export: {options.format}: {remark}"), file=sys.stderr)
    for path in written:
        print(printable(f"cbs export: wrote {len(results)} results to {path}"), file=sys.stderr)
    return EXIT_MISSING if refused else EXIT_OK


def _published(result: PortableResult) -> PortableResult:
    """Returns a result without host and folder names."""
    reason = result.reason and without_folders(result.reason)
    told = {name: _without_host(getattr(result, name)) for name in ("host", "extra")}
    return msgspec.structs.replace(result, reason=reason, **told)


def _without_host(values: Mapping[str, Any]) -> dict[str, Any]:
    name = values.get("hostname")
    return {**values, "hostname": host_name(name)} if isinstance(name, str) else dict(values)


def of_run(results: Sequence[PortableResult], run: str) -> list[PortableResult]:
    """Returns the results of a run, by its identifier or `latest`.

    Raises:
      UsageError: the run does not exist.
    """
    began = {result.run_id: result.timestamp or "" for result in results}
    if run == _LATEST and began:
        run = str(max(began, key=lambda name: (began[name], name)))
    found = [result for result in results if result.run_id == run]
    if not found:
        raise UsageError(f"no results of run {run!r}; choices are {', '.join(map(str, began))}")
    return found


def write(exported: Exported, output: str) -> list[Path]:
    """Writes the files of an export, each atomically; returns their paths.

    Raises:
      OSError: a file cannot be written.
      UsageError: several files cannot go to standard output, or into a file.
    """
    if list(exported.files) != [""]:
        return _write_directory(exported, output)
    if output == _STANDARD_OUTPUT:
        sys.stdout.buffer.write(exported.files[""])
        sys.stdout.buffer.flush()
        return []
    path = Path(output)
    if path.is_dir():
        raise UsageError(f"{output} is a directory; name a file in it")
    write_atomically(path, exported.files[""])
    return [path]


def _write_directory(exported: Exported, output: str) -> list[Path]:
    directory = Path(output)
    if output == _STANDARD_OUTPUT or directory.is_file():
        raise UsageError("this format consists of several files; name a directory with -o")
    paths = []
    for name, content in exported.files.items():
        path = directory / name
        write_atomically(path, content)
        paths.append(path)
    return paths


def _read_results(paths: Sequence[Path]) -> tuple[list[PortableResult], list[str]]:
    results: list[PortableResult] = []
    refused: list[str] = []
    seen: set[str | None] = set()
    for path in paths:
        contents = results_files.read(path)
        refused += contents.refused
        # Ignore duplicates, e.g. in a file and its copy.
        results += [result for result in contents.results if result.identity not in seen]
        seen |= {result.identity for result in contents.results}
    return results, refused


def import_(options: argparse.Namespace) -> int:
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
        from comparative_benchmark.reporting.history.database import Database
        from comparative_benchmark.reporting.history.writing import import_files
    except ModuleNotFoundError as error:
        raise UsageError(f"the history needs {error.name}: {install_command('history')}") from error
    database = Database(options.db)
    try:
        imported = import_files(
            database, lambda path: _read_foreign(path, options.format), options.files
        )
    finally:
        database.close()
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
        contents = _read_foreign(path, options.format)
        for sentence in contents.refused:
            _tell(f"refused: {sentence}")
        for result in contents.results:
            print(json.dumps(result.as_json(), ensure_ascii=False, allow_nan=False))
        read += len(contents.results)
        refused += len(contents.refused)
    _tell(f"{read} results read, nothing stored")
    return _exit_code(read, refused)


def _read_foreign(path: Path, name: str) -> Contents:
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
