"""Options of `cbs fleet`."""

import argparse
from pathlib import Path

from comparative_benchmark.cli.options.parsing import add_options

_ACTIONS = {
    "plan": "print the jobs and batches, without submitting anything",
    "submit": "submit all jobs that have not been submitted yet, without waiting for results",
    "status": "print the state of the jobs",
    "collect": "merge finished results into one results file",
    "resume": "resubmit jobs that ended without a result",
    "cancel": "cancel all queued and running jobs",
    "export": "write jobs for ReFrame, GitHub Actions or Kubernetes, without submitting them",
}
# Called by nodes and hosts, not by users.
_FOR_PROGRAMS = ("node", "runner", "agent")


class _Listed(dict[str, argparse.ArgumentParser]):
    """Subcommands shown in help, completion and suggestions; the hidden ones are accepted, too."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in _FOR_PROGRAMS


def add_fleet_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `cbs fleet`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in _ACTIONS.items():
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        action.add_argument("fleet", type=Path, metavar="FLEET.toml", help="fleet description")
        action.add_argument(
            "--campaign",
            default="",
            metavar="NAME",
            help="campaign name; choose a new one to measure everything again",
        )
        if name in ("plan", "status"):
            action.add_argument("--json", action="store_true", help="print JSON")
        if name == "collect":
            what = "results file to write, or to add results to (default: results/FLEET.json)"
            add_options(action, "output", metavar="FILE", help=what)
            action.add_argument(
                "--exported",
                type=Path,
                metavar="DIR",
                help="collect from a directory that `cbs fleet export` wrote, instead of the spool",
            )
        if name == "export":
            _add_export_arguments(action)
        if name == "resume":
            action.add_argument(
                "--longer",
                action="store_true",
                help="also resubmit jobs that exceeded the time limit (once, with twice the limit)",
            )
    _add_judge(actions.add_parser("judge", help="print verdicts for each class, and slow nodes"))
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
        help="tool that will start the jobs",
    )
    text = "new directory for the batches and the tool's input file"
    add_options(action, "output", required=True, metavar="DIR", help=text)
    action.add_argument(
        "--install",
        metavar="REQUIREMENT",
        help="requirement for pip on GitHub's runners (default: the suite's current revision)",
    )
    action.add_argument(
        "--image", metavar="NAME", help="container image with the suite (required for Kubernetes)"
    )


def _add_judge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, nargs="+", metavar="FILE", help="collected results")
    parser.add_argument(
        "--since",
        type=Path,
        metavar="FILE",
        help="compare with these older results, instead of comparing competitors with a baseline",
    )
    parser.add_argument(
        "--baseline",
        metavar="COMPETITOR",
        help="competitor to compute ratios against (default: the run's baseline)",
    )
    add_options(parser, "threshold", "json")
