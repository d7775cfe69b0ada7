"""Options of `cbs explain`, separate so that other commands need not import the command."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.arguments import add_options, spellings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs explain`."""
    add = parser.add_argument
    add("results", type=Path, metavar="RESULTS", help="results file")
    add(
        "competitors",
        nargs="*",
        metavar="COMPETITOR",
        help="two competitors of the file, e.g. pt_inductor:eager jax_xla:xla, or one to compare "
        "with the fastest (default: the slowest and the fastest). If one ran models of several "
        "frameworks, add /FRAMEWORK (iree:llvm-cpu/jax)",
    )
    add(
        *spellings("--case", "--workload"),
        dest="case",
        metavar="REGEX",
        help="workload to explain, if the file contains several: a regular expression to search "
        "for in names of cases, models and workloads",
    )
    add_options(
        parser, "device", default=None, help="device, if the file contains results of several"
    )
    add("--again", action="store_true", help="profile again, even if profiles are stored")
    add(
        *spellings("--no-profiling"),
        action="store_true",
        help="use stored profiles, and take no new ones",
    )
    add(
        *spellings("--recorded-python"),
        action="store_true",
        help="run the interpreter recorded in the results file, for results of `cbs run --env`. "
        "Use this only for files that you trust",
    )
    add_options(parser, "json", help="print JSON")
    add_options(parser, "suite", "root_dir")
    add_options(
        parser,
        "timeout",
        default=1800.0,
        help="seconds to profile one competitor (default: 1800)",
    )
    add_options(parser, "memory_limit")
