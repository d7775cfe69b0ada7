"""Options of `cbs fleet`."""

import argparse
from pathlib import Path

from comparative_benchmark.cli.options.parsing import add_options

_ACTIONS = {
    "plan": "print the jobs and batches, without submitting anything",
    "submit": "submit all jobs that were not submitted yet, and return",
    "status": "print where each job stands",
    "collect": "merge finished results into one results file",
    "resume": "submit again the jobs that ended without a result",
    "cancel": "cancel all jobs in the queue",
}


def add_fleet_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `cbs fleet`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in _ACTIONS.items():
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        action.add_argument(
            "fleet", type=Path, metavar="FLEET.toml", help="description of the fleet"
        )
        action.add_argument(
            "--campaign",
            default="",
            metavar="NAME",
            help="name of this execution of the fleet; another name measures everything again",
        )
        if name in ("plan", "status"):
            action.add_argument("--json", action="store_true", help="print JSON")
        if name == "collect":
            action.add_argument(
                *("-o", "--output"),
                type=Path,
                metavar="FILE",
                help="results file to add to (default: results/FLEET.json)",
            )
        if name == "resume":
            action.add_argument(
                "--longer",
                action="store_true",
                help="also start jobs that exceeded the time limit, once, with twice the limit",
            )
    _add_judge(actions.add_parser("judge", help="print verdicts on classes, and slow nodes"))
    # What nodes and hosts run; not for people, so without a line in the help.
    node = actions.add_parser("node")
    node.add_argument("batch", type=Path)
    runner = actions.add_parser("runner")
    runner.add_argument("folder", type=Path)
    actions.add_parser("agent")


def _add_judge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, nargs="+", metavar="FILE", help="collected results")
    parser.add_argument(
        "--since",
        type=Path,
        metavar="FILE",
        help="judge changes since these results, instead of competitors against the baseline",
    )
    parser.add_argument(
        "--baseline", metavar="COMPETITOR", help="baseline (default: that of `cbs show`)"
    )
    add_options(parser, "threshold", "json")
