"""Options of the commands in `cli`, separate so that help loads fast."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.arguments import add_options, spellings


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs list`."""
    add_options(parser, "name", "test", "tag", "framework", "suite")
    parser.add_argument("--workload", help="regular expression to search for in the workload's id")
    add_options(parser, "json")


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs compare`."""
    parser.add_argument("old", type=Path, help="results file to compare with")
    parser.add_argument("new", type=Path, help="results file to judge")
    add_options(parser, "threshold")
    add_options(
        parser,
        "count_unchanged",
        help="do not withhold verdicts on unchanged programs, or on differences that the machine "
        "can explain",
    )
    parser.add_argument(
        *spellings("--changed-models"),
        action="store_true",
        help="compare cases with the same name even if their models differ, e.g. before and after "
        "a change",
    )
    parser.add_argument(
        "--history",
        action="append",
        metavar="DB_URL|FILE|default",
        help="trends of cases, as for `cbs report` (default: the database of `cbs history`, if it "
        "exists). Differences no larger than from run to run count as noise",
    )
    add_options(parser, "json")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")


def add_backends_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs backends`."""
    add_options(parser, "json")


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs show`."""
    parser.add_argument("results", type=Path, help="a results file")
    parser.add_argument(
        "--baseline",
        help="competitor to compute ratios against (default: the baseline of the run)",
    )
    add_options(parser, "json")
