"""Options of `cbs userbenchmark`; apart from the command, so that other commands do not load it."""

import argparse
from pathlib import Path
from typing import Any

from comparative_benchmark.terminal.options import fraction, seconds, spellings


def add_parser(commands: Any) -> None:
    """Adds `cbs userbenchmark` to the commands."""
    parser = commands.add_parser(
        "userbenchmark", help="list, run, compare and bisect the experiments of users"
    )
    parser.set_defaults(handler=_run)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list the userbenchmarks")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.add_argument("--schedule", help="only those that a CI runs so often, e.g. nightly")
    run = actions.add_parser("run", help="run one in a process of its own")
    _add_name_and_arguments(run)
    run.add_argument("--timeout", type=seconds, metavar="S", help="seconds for it (default: none)")
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
    parser.add_argument(
        *spellings("-o", "--output"),
        dest="output",
        type=Path,
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
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_output(parser)


def _add_bisect(parser: argparse.ArgumentParser) -> None:
    _add_name_and_arguments(parser)
    add = parser.add_argument
    add("--good", required=True, help="the version, or commit, that is known to be good")
    add("--bad", required=True, help="a later one that is bad")
    add("--package", help="bisect its releases; with --git, what the build installs")
    add("--git", type=Path, metavar="REPO", help="bisect the commits of this repository")
    add("--build", metavar="CMD", help="shell command that installs a commit")
    add("--metric", default=".", metavar="REGEX", help="metrics to look at (default: all)")
    add(
        "--requirements",
        type=Path,
        metavar="FILE",
        help="what environments hold besides the package and what the suite itself needs",
    )
    add(
        "--companion",
        action="append",
        metavar="NAME[==VERSION]",
        help="a package that goes along, as in `cbs bisect`",
    )
    add("--pre", action="store_true", help="take pre-releases between the ends, too")
    add("--runs", type=int, default=3, metavar="N", help="runs of each side (default 3)")
    add(
        "--threshold",
        type=fraction,
        help="a change below it is good (default: half of that between the ends)",
    )
    add("--timeout", type=seconds, metavar="S", help="seconds for a run (default: none)")
    add(
        *spellings("--build-timeout"),
        dest="build_timeout",
        type=seconds,
        default=3600.0,
        metavar="S",
        help="seconds for --build (default 3600)",
    )
    add("--python", help="interpreter of the environments (default: this one)")
    add("--keep", type=int, default=4, metavar="N", help="environments to keep (default 4)")
    add("--attempts", type=int, default=2, metavar="N", help="tries of what is unclear (default 2)")
    add("--everything", action="store_true", help="judge every candidate")
    add("--json", action="store_true", help="print JSON")
    _add_output(parser)


def _run(options: argparse.Namespace) -> int:
    from comparative_benchmark.userbenchmarks import command

    return command.run(options)
