"""Options of `cbs export` and `cbs import`, separate so that other commands load no format."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.arguments import add_options

AUTO = "auto"
EXPORTS = (
    *("torchbench", "oss-v3", "google-benchmark", "pytest-benchmark"),
    *("asv", "csv", "parquet", "junit"),
)
IMPORTS = ("torchbench", "oss-v3", "google-benchmark", "openxla-suite")
# Former names of formats.
FORMER = {"seed-results": "openxla-suite"}


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs export`."""
    add = parser.add_argument
    add("results", nargs="+", type=Path, metavar="RESULTS", help="results files of this suite")
    add("--format", required=True, choices=EXPORTS, help="format to write")
    add_options(
        parser,
        "output",
        type=str,
        required=True,
        metavar="FILE",
        help="file to write, or - for standard output; a directory for asv",
    )
    add(
        "--run",
        metavar="ID",
        help="export only the results of this run; `latest` selects the run that started last",
    )
    add_options(parser, "with_host")


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs import`."""
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="files of another tool")
    add(
        "--format",
        default=AUTO,
        type=lambda name: FORMER.get(name, name),
        choices=(*IMPORTS, AUTO),
        help="format of the files (default: detected from each file)",
    )
    add("--db", metavar="URL", help="history database, as in `cbs history`")
    add_options(
        parser,
        "dry_run",
        help="read and check the files, print the results as JSON lines, and store nothing",
    )
