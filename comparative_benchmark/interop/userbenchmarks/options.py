"""Options of `cbs userbenchmark`, separate so that other commands need not import the command."""

import argparse
from pathlib import Path

from comparative_benchmark.studies.bisection.options import add_search_options
from comparative_benchmark.terminal.arguments import add_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `cbs userbenchmark`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list the userbenchmarks")
    add_options(listing, "json")
    listing.add_argument(
        "--schedule", help="list only userbenchmarks with this CI schedule, e.g. nightly"
    )
    run = actions.add_parser("run", help="run a userbenchmark in a separate process")
    _add_name_and_arguments(run)
    add_options(
        run, "timeout", default=None, help="time limit of the run in seconds (default: no limit)"
    )
    _add_output(run)
    _add_compare(actions.add_parser("compare", help="compare two metrics files"))
    _add_bisect(
        actions.add_parser("bisect", help="find the release or commit that changed a metric")
    )
    for action in actions.choices.values():
        action.add_argument(
            "--directory", type=Path, help="folder of userbenchmarks (default: userbenchmark/)"
        )


def _add_name_and_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        help="name of the userbenchmark, as `cbs userbenchmark list` prints it",
    )
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="ARGS",
        help="all following arguments, passed to its function run(args)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser,
        "output",
        metavar="DIR",
        help="folder for all output (default: .userbenchmark/ next to --directory; for bisect, a "
        "folder in results/bisect/)",
    )


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="two metrics files, control and treatment; or one NAME, to compare its last two; or "
        "two folders, to compare several runs by the intervals of their metrics",
    )
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="write a table of all metrics of two folders",
    )
    parser.add_argument("--yaml", type=Path, metavar="FILE", help="write the regression file")
    parser.add_argument(
        "--issue",
        type=Path,
        metavar="FILE",
        help="write the text of an issue, if anything changed",
    )
    parser.add_argument(
        "--owner",
        action="append",
        default=[],
        help="person to mention in the issue; may be repeated",
    )
    add_options(parser, "json")
    _add_output(parser)


def _add_bisect(parser: argparse.ArgumentParser) -> None:
    _add_name_and_arguments(parser)
    add_search_options(parser)
    add = parser.add_argument
    add("--metric", default=".", metavar="REGEX", help="metrics to judge (default: all)")
    add(
        "--requirements",
        type=Path,
        metavar="FILE",
        help="requirements file for the environments, in addition to the package and the suite's "
        "own requirements",
    )
    add("--runs", type=int, default=3, metavar="N", help="runs for each side (default: 3)")
    add_options(
        parser,
        "timeout",
        default=None,
        help="time limit of each run in seconds (default: no limit)",
    )
    add_options(parser, "json")
    _add_output(parser)
