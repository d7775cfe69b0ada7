"""Options of `cbs parity`, separate so that other commands need not import the command."""

import argparse

from comparative_benchmark.request import count
from comparative_benchmark.terminal.arguments import add_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs parity`."""
    add = parser.add_argument
    add_options(
        parser,
        "name",
        help="regular expression that must match the whole name of a case. Its workload runs in "
        "every framework that implements it",
    )
    add_options(parser, "tag")
    add_options(
        parser, "framework", help="frameworks of the models, e.g. pytorch,jax (default: all)"
    )
    add_options(parser, "suite")
    add(
        "--backend",
        help="backends, as in `cbs run` (default: the usual compilers of all installed backends, "
        "without variants of a compiler such as IREE's data tiling)",
    )
    add_options(parser, "device")
    add_options(parser, "output", help="JSON file for the matrix (default: not saved)")
    add(
        "--resume",
        action="store_true",
        help="skip cells that are ok or unsupported in the output file",
    )
    add(
        "--drift",
        action=argparse.BooleanOptionalAction,
        help="report the layer in which implementations drift apart, for every workload or for "
        "none (default: for workloads with a wrong output)",
    )
    add_options(parser, "expected_failures", "root_dir")
    add(
        "--jobs",
        type=count(1),
        metavar="N",
        help="cells to run in parallel, each with its share of CPUs and memory (default: one for "
        "each CPU with 4G of memory, 1 on an accelerator). Cells that fail run again alone",
    )
    add_options(
        parser,
        "threads",
        help="threads for each backend. With parallel cells, the default and the maximum are a "
        "cell's share of the CPUs; for more, use --jobs 1",
    )
    add_options(parser, "timeout", default=900.0, help="seconds for a cell (default: 900)")
    add_options(
        parser,
        "memory_limit",
        help="memory limit of a worker, e.g. 8G (default: its share of the available memory minus "
        "1G)",
    )
    add_options(parser, "json", help="print the cells as JSON")
    add_options(parser, "verbose", help="print log files and tracebacks of failures")
