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
    "export": "write the jobs for ReFrame, GitHub Actions or Kubernetes, without submitting them",
}
# Nodes and hosts run these; people do not.
_FOR_PROGRAMS = ("node", "runner", "agent")


class _Listed(dict[str, argparse.ArgumentParser]):
    """Subcommands that help, completion and suggestions list; all others are accepted, too."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in _FOR_PROGRAMS


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
            action.add_argument(
                "--exported",
                type=Path,
                metavar="DIR",
                help="collect from a folder that `cbs fleet export` wrote, not from the spool",
            )
        if name == "export":
            _add_export_arguments(action)
        if name == "resume":
            action.add_argument(
                "--longer",
                action="store_true",
                help="also start jobs that exceeded the time limit, once, with twice the limit",
            )
    _add_judge(actions.add_parser("judge", help="print verdicts on classes, and slow nodes"))
    listed = _Listed(actions.choices or {})
    node = actions.add_parser("node")
    node.add_argument("batch", type=Path)
    runner = actions.add_parser("runner")
    runner.add_argument("folder", type=Path)
    actions.add_parser("agent")
    actions.choices = listed


def _add_export_arguments(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--to",
        dest="target",
        required=True,
        choices=("reframe", "github", "kubernetes"),
        help="the tool that starts the jobs",
    )
    action.add_argument(
        *("-o", "--output"),
        type=Path,
        required=True,
        metavar="DIR",
        help="new folder for the batches and the file of the tool",
    )
    action.add_argument(
        "--install",
        metavar="REQUIREMENT",
        help="requirement of pip for the suite on GitHub's runners (default: this revision)",
    )
    action.add_argument(
        "--image", metavar="NAME", help="container image with the suite, for Kubernetes"
    )


def _add_judge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, nargs="+", metavar="FILE", help="collected results")
    parser.add_argument(
        "--since",
        type=Path,
        metavar="FILE",
        help="judge changes since these results, instead of competitors against the baseline",
    )
    parser.add_argument(
        "--baseline", metavar="COMPETITOR", help="baseline (default: the one of `cbs show`)"
    )
    add_options(parser, "threshold", "json")
