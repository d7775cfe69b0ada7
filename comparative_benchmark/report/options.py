"""Options of `cbs report`; apart from the command, so that other commands do not load it."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.options import add_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs report`."""
    add = parser.add_argument
    add("results", nargs="+", type=Path, help="results files; of a case in several the latest")
    add_options(parser, "output", help="HTML page to write")
    add("--markdown", metavar="FILE|-", help="Markdown to write, for a pull request; - prints it")
    add("--chart", type=Path, metavar="FILE", help="main chart to write, .png or .svg")
    add(
        "--against",
        metavar="COMPETITOR",
        help="competitor that speed-ups are against (default: pt_inductor:eager, or without it "
        "the one that ran most cases)",
    )
    add(
        "--baseline",
        type=Path,
        metavar="OLD.json",
        help="older results: what changed since then, as `cbs compare` judges it",
    )
    add(
        "--history",
        action="append",
        default=[],
        metavar="DB_URL|FILE|default",
        help="how each case went over time: a history database, a JSON file of trends or older "
        "results; `default` is the database of `cbs history` ($CBS_HISTORY); may be repeated",
    )
    add("--title", default="Benchmark report", help="heading of the page (default %(default)r)")
    add_options(parser, "threshold", "with_host")
