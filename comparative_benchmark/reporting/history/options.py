"""Options of `cbs history`, separate so that other commands do not load it."""

import argparse
import datetime
from pathlib import Path

from comparative_benchmark.terminal.arguments import add_options, spellings

# Column -> option; by default an option is named like its column.
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `cbs history`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    importing = actions.add_parser("import", help="add results files; skip known results")
    importing.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json")
    _add_database(importing)
    _add_query(actions.add_parser("query", help="print results, oldest first"))
    listing = actions.add_parser("ls", help="list the trends")
    _add_filters(listing)
    add_options(listing, "json")
    _add_regressions(
        actions.add_parser(
            "regressions",
            help="find results that became slower, bigger or wrong, and since when; exit code 2 if "
            "there are any, 3 if results are missing",
        )
    )


def _add_query(parser: argparse.ArgumentParser) -> None:
    _add_filters(parser)
    add = parser.add_argument
    add("--format", choices=("table", "csv", "json", "parquet"), default="table")
    add_options(parser, "output", help="write to this file")
    add(
        "--limit",
        type=_count,
        metavar="N",
        help="print only the newest N results (default: 50 for a table without -o, otherwise all)",
    )


def _add_regressions(parser: argparse.ArgumentParser) -> None:
    _add_filters(parser)
    add = parser.add_argument
    add(
        "--window",
        type=_count,
        default=60,
        metavar="N",
        help="examine the newest N results of each trend (default: %(default)s)",
    )
    add(
        "--threshold",
        action="append",
        default=[],
        type=_threshold,
        metavar="METRIC=FRACTION",
        help="smallest increase of a metric to count, e.g. latency_ms=0.05; may be repeated",
    )
    add_options(
        parser,
        "count_unchanged",
        help="also count steps of unchanged programs, and steps no larger than those",
    )
    add_options(parser, "json")
    add(
        "--yaml",
        type=Path,
        metavar="FILE",
        help="write a regression file in the format of TorchBench's detector",
    )
    add("--issue", type=Path, metavar="FILE", help="write the text of a GitHub issue (Markdown)")
    add(
        "--name",
        default="comparative-suite",
        help="benchmark name in the YAML file and the issue",
    )
    add(
        "--owner",
        action="append",
        default=[],
        metavar="@NAME",
        help="person to mention in the issue; may be repeated",
    )


def _add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--db",
        metavar="URL",
        help="SQLite file, or postgresql://USER@HOST/NAME (default: $CBS_HISTORY, or a file in "
        "the user's data folder)",
    )


def _add_filters(parser: argparse.ArgumentParser) -> None:
    _add_database(parser)
    group = parser.add_argument_group(
        "filters",
        "All filters must match; a repeated filter matches if any of its values does. Values "
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
    since = "start of the period, e.g. 2026-11-01, 2026-11-01T06:00+01:00 or 30d (before now)"
    group.add_argument("--since", type=_time, metavar="TIME", help=since)
    group.add_argument(
        "--until",
        type=_time,
        metavar="TIME",
        help="end of the period (exclusive), in the same format",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def _time(text: str) -> datetime.datetime:
    from comparative_benchmark.reporting.history.portable import parsed

    try:
        return parsed(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 2026-11-01, 2026-11-01T06:00 or 30d"
        ) from None


def _package(text: str) -> tuple[str, str]:
    name, separator, version = text.partition("=")
    if not separator or not name or not version:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VERSION")
    return name, version.removeprefix("=")


def _threshold(text: str) -> tuple[str, float]:
    metric, _, value = text.partition("=")
    if metric not in _METRICS:
        raise argparse.ArgumentTypeError(
            f"{metric!r} is not a metric; choices are {', '.join(_METRICS)}"
        )
    try:
        threshold = float(value)
    except ValueError:
        threshold = -1.0
    if not 0 <= threshold < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not METRIC=FRACTION, e.g. latency_ms=0.05")
    return metric, threshold
