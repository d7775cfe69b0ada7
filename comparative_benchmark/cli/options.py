"""Options of the commands that `cli` itself has; apart from them, so that help loads fast."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.options import add_options, spellings


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs list`."""
    add_options(parser, "name", "test", "tag", "framework", "suite")
    parser.add_argument("--workload", help="regular expression to be found in the workload's id")
    add_options(parser, "json")


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs compare`."""
    parser.add_argument("old", type=Path, help="the results to compare with")
    parser.add_argument("new", type=Path, help="the results in question")
    add_options(parser, "threshold")
    add_options(
        parser,
        "count_unchanged",
        help="let programs be faster or slower that are the same in both files",
    )
    parser.add_argument(
        *spellings("--changed-models"),
        action="store_true",
        help="compare cases of one name although their models differ, as before and after a change",
    )
    parser.add_argument(
        "--history",
        action="append",
        metavar="DB_URL|FILE|default",
        help="how cases went over time, as for `cbs report`: differences as small as from run to "
        "run are noise (default: the database of `cbs history`, if there is one)",
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
        help="competitor to take ratios against (default: the run's own baseline)",
    )
    add_options(parser, "json")
