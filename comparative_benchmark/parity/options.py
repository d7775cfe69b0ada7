"""Options of `cbs parity`; apart from the command, so that other commands do not load it."""

import argparse

from comparative_benchmark.terminal.options import add_options, count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs parity`."""
    add = parser.add_argument
    add_options(
        parser,
        "name",
        help="regular expression for the whole name of a case; its workload is run, in every "
        "framework that implements it",
    )
    add_options(parser, "tag")
    add_options(
        parser, "framework", help="frameworks of the models, e.g. pytorch,jax (default: all)"
    )
    add_options(parser, "suite")
    add(
        "--backend",
        help="backends, as in `cbs run` (default: the usual compilers of all that are installed, "
        "but not those that are another setting of one of them, such as IREE's data tiling)",
    )
    add_options(parser, "device")
    add_options(parser, "output", help="JSON file of the matrix; without one nothing is kept")
    add(
        "--resume",
        action="store_true",
        help="leave out cells that are ok or unsupported in the output file",
    )
    add(
        "--drift",
        action=argparse.BooleanOptionalAction,
        help="say of every workload in which layer its implementations drift apart, or of none "
        "(default: of those with a wrong output)",
    )
    add_options(parser, "expected_failures", "root_dir")
    add(
        "--jobs",
        type=count(1),
        metavar="N",
        help="cells that run at a time, each with its share of CPUs and memory; what fails so is "
        "run again alone (default: one for each CPU that has 4G of memory beside it, 1 on an "
        "accelerator)",
    )
    add_options(
        parser,
        "threads",
        help="threads for each backend; side by side, at most its share of the CPUs, which is the "
        "default (more: --jobs 1)",
    )
    add_options(parser, "timeout", default=900.0, help="for a cell (default 900)")
    add_options(
        parser,
        "memory_limit",
        help="memory of a worker, e.g. 8G (default: its share of what is available, less 1G)",
    )
    add_options(parser, "json", help="print the cells as JSON")
    add_options(parser, "verbose", help="print log files and tracebacks of failures")
