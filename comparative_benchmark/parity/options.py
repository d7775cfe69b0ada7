"""Options of `cbs parity`; apart from the command, so that other commands do not load it."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.options import count, seconds, size, spellings
from openxla.benchmark import devices


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs parity`."""
    add = parser.add_argument
    add(
        *spellings("-name", "--benchmark-name"),
        dest="name",
        help="regular expression for the whole name of a case; its workload is run, in every "
        "framework that implements it",
    )
    add("--tag", action="append", default=[], help="a tag that cases must have")
    add("--framework", help="frameworks of the models, e.g. pytorch,jax (default: all)")
    add(
        "--suite",
        action="append",
        default=[],
        metavar="MODULE",
        help="a further module with ALL_BENCHMARKS",
    )
    add(
        "--backend",
        help="backends, as in `cbs run` (default: the usual compilers of all that are installed, "
        "but not those that are another setting of one of them, such as IREE's data tiling)",
    )
    add(
        *spellings("-device", "--target-device"),
        dest="device",
        default=devices.HOST_CPU.name,
        help="device to run on (default %(default)s)",
    )
    add(
        *spellings("-o", "--output"),
        dest="output",
        type=Path,
        help="JSON file of the matrix; without one nothing is kept",
    )
    add(
        "--resume",
        action="store_true",
        help="leave out cells that are ok or unsupported in the output file",
    )
    add(
        "--drift",
        action="store_true",
        help="say of every workload in which layer its implementations drift apart, not only of "
        "those with a wrong output",
    )
    add(
        *spellings("--expected-failures"),
        dest="expected_failures",
        type=Path,
        metavar="FILE",
        help="another list of known failures than the one that is checked in",
    )
    add("--root-dir", "--root_dir", dest="root_dir", type=Path, help="as in `cbs run`")
    add(
        "--jobs",
        type=count(1),
        metavar="N",
        help="cells that run at a time, each with its share of CPUs and memory; what fails so is "
        "run again alone (default: one for each CPU that has 4G of memory beside it, 1 on an "
        "accelerator)",
    )
    add(
        "--threads",
        type=count(1),
        help="threads for each backend; side by side, at most its share of the CPUs, which is the "
        "default (more: --jobs 1)",
    )
    add("--timeout", type=seconds, default=900.0, metavar="S", help="for a cell (default 900)")
    add(
        *spellings("--memory-limit"),
        dest="memory_limit",
        type=size,
        metavar="SIZE",
        help="memory of a worker, e.g. 8G (default: its share of what is available, less 1G)",
    )
    add("--verbose", action="store_true", help="print log files and tracebacks of failures")
