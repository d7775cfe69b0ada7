"""Options of `cbs explain`; apart from the command, so that other commands do not load it."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.options import add_options, spellings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs explain`."""
    add = parser.add_argument
    add("results", type=Path, metavar="RESULTS", help="a results file")
    add(
        "competitors",
        nargs="*",
        metavar="COMPETITOR",
        help="two of the file, e.g. pt_inductor:eager jax_xla:xla, with /FRAMEWORK of the model "
        "where one ran several (iree:llvm-cpu/jax); one alone is set against the fastest "
        "(default: the slowest and the fastest)",
    )
    add(
        *spellings("--case", "--workload"),
        dest="case",
        metavar="REGEX",
        help="the workload, by a case, model or workload whose name has a match, where the file "
        "holds several",
    )
    add_options(parser, "device", default=None, help="the device, where there are several")
    add("--again", action="store_true", help="profile anew, whatever profiles are kept")
    add(
        *spellings("--no-profiling"),
        action="store_true",
        help="use the profiles that are kept, and take none",
    )
    add(
        *spellings("--recorded-python"),
        action="store_true",
        help="run the interpreter that the results file names, for a result of `cbs run --env`; "
        "only for a file that you trust",
    )
    add_options(parser, "json", help="print JSON")
    add_options(parser, "suite", "root_dir")
    add_options(parser, "timeout", default=1800.0, help="for a profile (default 1800)")
    add_options(parser, "memory_limit")
