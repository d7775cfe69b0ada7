"""Options of `cbs doctor`; apart from the command, so that other commands do not load it."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.options import seconds, spellings
from openxla.benchmark.root import ROOT_DIR_VARIABLE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs doctor`."""
    parser.add_argument(
        "--ceilings",
        action="store_true",
        help="also measure the best matrix product and copy (a minute or two), and keep them",
    )
    parser.add_argument(
        *spellings("-device", "--target-device"),
        dest="device",
        default="host-cpu",
        help="device of the ceilings, e.g. host-gpu (default: %(default)s)",
    )
    parser.add_argument(
        "--noise-floor",
        "--noise_floor",
        dest="noise_floor",
        nargs="+",
        type=Path,
        metavar="RESULTS.json",
        help="also work out how far unchanged programs lie apart in these results, and keep it",
    )
    parser.add_argument(
        "--threads", type=int, help="threads of the ceilings of a CPU (default: usable CPUs)"
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
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--root-dir",
        "--root_dir",
        dest="root_dir",
        help=f"where artifacts are kept (default ${ROOT_DIR_VARIABLE})",
    )
