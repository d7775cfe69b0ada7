"""Options of `cbs doctor`, separate so that other commands need not import the command."""

import argparse
from pathlib import Path

from comparative_benchmark.request import seconds
from comparative_benchmark.terminal.arguments import add_options, spellings
from openxla.benchmark.root import ROOT_DIR_VARIABLE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs doctor`."""
    parser.add_argument(
        "--ceilings",
        action="store_true",
        help="also measure and save the rates of the fastest matrix product and memory copy "
        "(one to two minutes)",
    )
    add_options(
        parser,
        "device",
        help="device whose ceilings to measure, e.g. host-gpu (default: %(default)s)",
    )
    parser.add_argument(
        *spellings("--noise-floor"),
        nargs="+",
        type=Path,
        metavar="RESULTS.json",
        help="also compute and save the differences between unchanged programs in these results",
    )
    # Accept any number: the command counts the CPUs and reports an error if it is too large.
    add_options(
        parser,
        "threads",
        type=int,
        help="threads used to measure CPU ceilings (default: physical cores)",
    )
    parser.add_argument(
        "--budget",
        type=seconds,
        metavar="S",
        help="seconds for all ceilings; rates that do not fit are skipped (default: no limit)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with code 2 on a warning or a problem"
    )
    add_options(parser, "json")
    add_options(parser, "root_dir", help=f"directory of artifacts (default: ${ROOT_DIR_VARIABLE})")
