"""Options of `cbs export` and `cbs import`; apart, so that other commands load no format."""

import argparse
from pathlib import Path
from typing import Any

from comparative_benchmark.terminal.options import spellings

AUTO = "auto"
EXPORTS = (
    *("torchbench", "oss-v3", "google-benchmark", "pytest-benchmark"),
    *("asv", "csv", "parquet", "junit"),
)
IMPORTS = ("torchbench", "oss-v3", "google-benchmark", "openxla-suite")


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs export`."""
    add = parser.add_argument
    add("results", nargs="+", type=Path, metavar="RESULTS", help="results files of this suite")
    add("--format", required=True, choices=EXPORTS, help="whose readers it is for")
    add(
        *spellings("-o", "--output"),
        dest="output",
        required=True,
        metavar="FILE",
        help="file to write, - for standard output; a directory for asv",
    )
    add(
        "--run",
        metavar="ID",
        help="only the results of this run; `latest` is the one that began last",
    )


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs import`."""
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="files of another tool")
    add(
        "--format",
        default=AUTO,
        choices=(*IMPORTS, AUTO),
        help="what they are (default: found out from each file)",
    )
    add("--db", metavar="URL", help="database of the history, as in `cbs history`")
    add(
        *spellings("--dry-run"),
        dest="dry_run",
        action="store_true",
        help="read and check the files, print the results as JSON lines, and keep nothing",
    )


def add_parser(commands: Any) -> None:
    """Adds `cbs export` and `cbs import` to the commands."""
    exporting = commands.add_parser("export", help="write results in the format of another tool")
    add_export_arguments(exporting)
    exporting.set_defaults(handler=_export)
    importing = commands.add_parser("import", help="read results of other tools into the history")
    add_import_arguments(importing)
    importing.set_defaults(handler=_import)


def _export(options: argparse.Namespace) -> int:
    from comparative_benchmark.formats import export_command

    return export_command.run(options)


def _import(options: argparse.Namespace) -> int:
    from comparative_benchmark.formats import import_command

    return import_command.run(options)
