"""Options of `cbs report`, separate so that other commands do not load it."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.arguments import add_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs report`."""
    add = parser.add_argument
    add(
        "results",
        nargs="+",
        type=Path,
        help="results files; if several contain a case, the latest result counts",
    )
    add_options(parser, "output", help="HTML page to write")
    add(
        "--markdown",
        metavar="FILE|-",
        help="Markdown file to write, for a pull request; - prints it",
    )
    add("--chart", type=Path, metavar="FILE", help="main chart to write, .png or .svg")
    add(
        "--baseline",
        "--against",
        metavar="COMPETITOR",
        help="competitor to compute speed-ups against (default: pt_inductor:eager, or else the one "
        "that ran the most cases)",
    )
    add(
        "--since",
        type=Path,
        metavar="OLD.json",
        help="show the changes since these older results, as judged by `cbs compare`",
    )
    add(
        "--history",
        action="append",
        default=[],
        metavar="DB_URL|FILE|default",
        help="trends of cases: a history database, a JSON file of trends or older results; may be "
        "repeated. `default` is the database of `cbs history` ($CBS_HISTORY)",
    )
    add("--title", default="Benchmark report", help="heading of the page (default: %(default)r)")
    add_options(parser, "threshold", "with_host")
