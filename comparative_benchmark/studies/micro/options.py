"""Options of `cbs micro`, separate so that other commands need not import the command."""

import argparse
from pathlib import Path

from comparative_benchmark.request import count
from comparative_benchmark.terminal.arguments import add_options, spellings
from comparative_benchmark.terminal.run_options import add_measuring_arguments

DATA_TYPES = ("fp32", "bf16", "fp16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `cbs micro`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list operators, shapes and recipes")
    add_options(listing, "json")
    run = actions.add_parser("run", help="race operators over shapes")
    _add_selection(run)
    # A guide's file may define competitors and device.
    add_measuring_arguments(run)
    run.set_defaults(backend=None, device=None)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="run a YAML file of torchao's benchmarking guide, and write its CSV and JSON tables "
        "next to -o",
    )
    what.add_argument(
        "--op",
        metavar="NAMES",
        help="operators, e.g. matmul,softmax, or `all`; `cbs micro list` lists them",
    )
    add(
        "--backward",
        action="store_true",
        help="measure forward and backward together: outputs, and gradients of inputs and weights",
    )
    add(
        *spellings("--from-model"),
        metavar="REGEX",
        help="race the matrix products that this case runs, as matmul or --op linear, and print "
        "how much of its time they explain",
    )
    add(
        "--shapes",
        help="shapes or names of shape sets, e.g. llama,64x128x256 (default: small_sweep)",
    )
    add(
        *spellings("--min-power"),
        type=count(0),
        metavar="P",
        help="smallest power of two in sweeps",
    )
    add(
        *spellings("--max-power"),
        type=count(0),
        metavar="P",
        help="largest power of two in sweeps; larger shapes of other sets are skipped",
    )
    add(
        "--dtype",
        help=f"data types, any of {', '.join(DATA_TYPES)} (default: fp32)",
    )
    add(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw speed-ups over the baseline by shape, and speed-ups of recipes by "
        "signal-to-noise ratio, e.g. FILE.svg",
    )
    add(
        *spellings("--own-workers"),
        action="store_true",
        help="start fresh processes for each shape, as `cbs run` does (default: the processes of a "
        "competitor run all shapes)",
    )
