"""Options of `cbs userbenchmark`; apart from the command, so that other commands do not load it."""

import argparse
from pathlib import Path

from comparative_benchmark.bisection.options import add_search_options
from comparative_benchmark.terminal.options import add_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `cbs userbenchmark`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list the userbenchmarks")
    add_options(listing, "json")
    listing.add_argument("--schedule", help="only those that a CI runs so often, e.g. nightly")
    run = actions.add_parser("run", help="run one in a process of its own")
    _add_name_and_arguments(run)
    add_options(run, "timeout", default=None, help="seconds for it (default: none)")
    _add_output(run)
    _add_compare(actions.add_parser("compare", help="what changed between two metrics files"))
    _add_bisect(
        actions.add_parser("bisect", help="find the release or commit that changed a metric")
    )
    for action in actions.choices.values():
        action.add_argument(
            "--directory", type=Path, help="folder of userbenchmarks (default: userbenchmark/)"
        )


def _add_name_and_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="as `cbs userbenchmark list` has it")
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="ARGS",
        help="all that follows: arguments of its run(args)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser,
        "output",
        metavar="DIR",
        help="folder of all output (default .userbenchmark/ beside the folder)",
    )


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="control and treatment; or one NAME, for its last two metrics files",
    )
    parser.add_argument("--yaml", type=Path, metavar="FILE", help="write the regression file")
    parser.add_argument("--issue", type=Path, metavar="FILE", help="write the text of an issue")
    parser.add_argument("--owner", action="append", default=[], help="whom the issue tells")
    add_options(parser, "json")
    _add_output(parser)


def _add_bisect(parser: argparse.ArgumentParser) -> None:
    _add_name_and_arguments(parser)
    add_search_options(parser)
    add = parser.add_argument
    add("--metric", default=".", metavar="REGEX", help="metrics to look at (default: all)")
    add(
        "--requirements",
        type=Path,
        metavar="FILE",
        help="what environments hold besides the package and what the suite itself needs",
    )
    add("--runs", type=int, default=3, metavar="N", help="runs of each side (default 3)")
    add_options(parser, "timeout", default=None, help="seconds for a run (default: none)")
    add_options(parser, "json")
    _add_output(parser)
