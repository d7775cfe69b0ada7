"""Options of `cbs doctor`; apart from the command, so that other commands do not load it."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.options import add_options, seconds, spellings
from openxla.benchmark.root import ROOT_DIR_VARIABLE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs doctor`."""
    parser.add_argument(
        "--ceilings",
        action="store_true",
        help="also measure the best matrix product and copy (a minute or two), and keep them",
    )
    add_options(
        parser, "device", help="device of the ceilings, e.g. host-gpu (default: %(default)s)"
    )
    parser.add_argument(
        *spellings("--noise-floor"),
        nargs="+",
        type=Path,
        metavar="RESULTS.json",
        help="also work out how far unchanged programs lie apart in these results, and keep it",
    )
    # Any number here: the command counts the CPUs and says if it is too many.
    add_options(
        parser,
        "threads",
        type=int,
        help="threads of the ceilings of a CPU (default: physical cores)",
    )
    parser.add_argument(
        "--budget",
        type=seconds,
        metavar="S",
        help="seconds that all ceilings may take; rates that do not fit are left out (default: "
        "none)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with 2 on a warning or a problem"
    )
    add_options(parser, "json")
    add_options(parser, "root_dir", help=f"where artifacts are kept (default ${ROOT_DIR_VARIABLE})")
