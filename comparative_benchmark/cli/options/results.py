"""Options of commands that list, show, compare, export and store results."""

import argparse
import datetime
from pathlib import Path
from typing import Any

from comparative_benchmark.cli.options.parsing import add_options, spellings
from comparative_benchmark.reporting.formats import AUTO, EXPORTS, FORMER, IMPORTS


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs list`."""
    add_options(parser, "name", "test", "tag", "framework", "suite")
    parser.add_argument("--workload", help="regular expression to search for in the workload ID")
    add_options(parser, "json")


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs compare`."""
    parser.add_argument("old", type=Path, help="baseline results file")
    parser.add_argument("new", type=Path, help="results file to compare with the baseline")
    add_options(parser, "threshold", "count_unchanged")
    parser.add_argument(
        *spellings("--changed-models"),
        action="store_true",
        help="compare cases with the same name even if their models differ, e.g. after you changed "
        "a model",
    )
    parser.add_argument(
        "--history",
        action="append",
        metavar="DB_URL|FILE|default",
        help="earlier results, as in `cbs report`; differences within their run-to-run variation "
        "count as noise (default: the `cbs history` database, if it exists)",
    )
    views: Any = parser.add_mutually_exclusive_group()
    add_options(views, "json")
    views.add_argument("--markdown", action="store_true", help="print Markdown instead of a table")


def add_backends_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs backends`."""
    add_options(parser, "json")


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs show`."""
    parser.add_argument("results", type=Path, help="results file")
    parser.add_argument(
        "--baseline", help="competitor to compute ratios against (default: the run's baseline)"
    )
    add_options(parser, "json")


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs report`."""
    add = parser.add_argument
    add(
        "results",
        nargs="+",
        type=Path,
        help="results files; if a case is in several of them, its latest result is used",
    )
    add_options(parser, "output", help="HTML page to write")
    add(
        "--markdown",
        metavar="FILE|-",
        help="Markdown file to write, e.g. for a pull request; - prints the Markdown",
    )
    add("--chart", type=Path, metavar="FILE", help="file to write the main chart to, .png or .svg")
    add(
        "--baseline",
        "--against",
        metavar="COMPETITOR",
        help="competitor to compute ratios against (default: pt_inductor:eager if present, "
        "otherwise the competitor that ran the most cases)",
    )
    add(
        "--since",
        type=Path,
        metavar="OLD.json",
        help="show changes since these older results, with the verdicts of `cbs compare`",
    )
    add(
        "--history",
        action="append",
        default=[],
        metavar="DB_URL|FILE|default",
        help="earlier results to show as trends: a history database, a JSON file with trends or an "
        "older results file; may be repeated. `default` is the `cbs history` database",
    )
    add("--title", default="Benchmark report", help="page heading (default: %(default)r)")
    add_options(parser, "threshold", "with_host")


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs export`."""
    add = parser.add_argument
    add("results", nargs="+", type=Path, metavar="RESULTS", help="results files")
    add("--format", required=True, choices=EXPORTS, help="format to write")
    add_options(
        parser,
        "output",
        type=str,
        required=True,
        metavar="FILE",
        help="file to write, or - for standard output; for asv, directory to write to",
    )
    add(
        "--run",
        metavar="ID",
        help="ID of the run to export, or `latest` for the most recent run (default: all runs)",
    )
    add_options(parser, "with_host")


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs import`."""
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="results files from another tool")
    add(
        "--format",
        default=AUTO,
        type=lambda name: FORMER.get(name, name),
        choices=(*IMPORTS, AUTO),
        help="format of the files (default: detected for each file)",
    )
    _add_database(parser)
    add_options(
        parser,
        "dry_run",
        help="check the files and print their results as JSON lines, without storing anything",
    )


# The filter option of each column.
FILTERS = {
    "workload": "--workload",
    "benchmark": "--benchmark-name",
    "framework": "--framework",
    "level": "--level",
    "data_type": "--data-type",
    "batch_size": "--batch-size",
    "backend": "--backend",
    "compiler": "--compiler",
    "options": "--option",
    "environment": "--environment",
    "device": "--device",
    "machine": "--machine",
    "threads": "--threads",
    "workload_digest": "--workload-digest",
    "source": "--source",
    "run_id": "--run",
    "revision": "--revision",
    "program": "--program",
    "status": "--status",
}


_METRICS = (
    *("latency_ms", "compile_ms", "warm_compile_ms"),
    *("host_memory_mb", "device_memory_mb", "error"),
)


def add_history_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `cbs history`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    importing = actions.add_parser("import", help="add results files, skipping known results")
    add = importing.add_argument
    add("results", nargs="+", type=Path, metavar="RESULTS.json", help="results files to add")
    _add_database(importing)
    _add_query(actions.add_parser("query", help="print results, oldest first"))
    listing = actions.add_parser("ls", help="list all trends")
    _add_filters(listing)
    add_options(listing, "json")
    _add_regressions(
        actions.add_parser(
            "regressions",
            help="find results that became slower, larger or wrong, and the first bad run; exit "
            "with code 2 if there are any, 3 if results are missing",
        )
    )


def _add_query(parser: argparse.ArgumentParser) -> None:
    _add_filters(parser)
    add = parser.add_argument
    formats = ("table", "csv", "json", "parquet")
    add("--format", choices=formats, default="table", help="output format (default: table)")
    add_options(parser, "output", help="file to write (default: standard output)")
    add(
        "--limit",
        type=_count,
        metavar="N",
        help="number of newest results to print (default: 50 for a table without -o, otherwise "
        "all)",
    )


def _add_regressions(parser: argparse.ArgumentParser) -> None:
    _add_filters(parser)
    add = parser.add_argument
    add(
        "--window",
        type=_count,
        default=60,
        metavar="N",
        help="number of newest results to examine in each trend (default: %(default)s)",
    )
    add(
        "--threshold",
        action="append",
        default=[],
        type=_threshold,
        metavar="METRIC=FRACTION",
        help="smallest relative increase to report, e.g. latency_ms=0.05; may be repeated",
    )
    add_options(parser, "count_unchanged", "json")
    add(
        "--yaml", type=Path, metavar="FILE", help="regression file to write, in TorchBench's format"
    )
    add("--issue", type=Path, metavar="FILE", help="file for the text of a GitHub issue")
    add(
        "--name",
        default="comparative-suite",
        help="benchmark name for --yaml and --issue (default: %(default)s)",
    )
    add(
        "--owner",
        action="append",
        default=[],
        metavar="@NAME",
        help="GitHub user to mention in the issue; may be repeated",
    )


def _add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--db",
        metavar="URL",
        help="history database: SQLite file or postgresql://USER@HOST/NAME (default: $CBS_HISTORY, "
        "or a file in your data directory)",
    )


def _add_filters(parser: argparse.ArgumentParser) -> None:
    _add_database(parser)
    group = parser.add_argument_group(
        "filters",
        "All filters must match. A repeated filter matches if any of its values matches. Values "
        "can contain * and ?, as in a shell.",
    )
    for column, option in FILTERS.items():
        short = ("-name",) if column == "benchmark" else ()
        group.add_argument(
            *spellings(*short, option),
            dest=f"filter_{column}",
            action="append",
            metavar=column.upper(),
        )
    group.add_argument(
        "--package",
        action="append",
        default=[],
        type=_package,
        metavar="NAME=VERSION",
        help="version of an imported package, e.g. jax=0.10.*",
    )
    since = "start of the period, e.g. 2026-11-01, 2026-11-01T06:00+01:00 or 30d (30 days ago)"
    group.add_argument("--since", type=_time, metavar="TIME", help=since)
    group.add_argument(
        "--until",
        type=_time,
        metavar="TIME",
        help="end of the period (exclusive), in the same format as --since",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 10**9:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return int(text)


def _time(text: str) -> datetime.datetime:
    from comparative_benchmark.reporting.history.rows import parse_time

    try:
        return parse_time(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a time such as 2026-11-01, 2026-11-01T06:00 or 30d, got {text!r}"
        ) from None


def _package(text: str) -> tuple[str, str]:
    name, separator, version = text.partition("=")
    if not separator or not name or not version:
        raise argparse.ArgumentTypeError(f"expected NAME=VERSION, got {text!r}")
    return name, version.removeprefix("=")


def _threshold(text: str) -> tuple[str, float]:
    metric, _, value = text.partition("=")
    if metric not in _METRICS:
        known = ", ".join(_METRICS)
        raise argparse.ArgumentTypeError(f"unknown metric {metric!r}; choices are {known}")
    try:
        threshold = float(value)
    except ValueError:
        threshold = -1.0
    if not 0 <= threshold < 1e6:
        raise argparse.ArgumentTypeError(
            f"expected METRIC=FRACTION, e.g. latency_ms=0.05, got {text!r}"
        )
    return metric, threshold
