"""Options of `cbs repro`; apart from the command, so that other commands do not load it."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.options import add_options, spellings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs repro`."""
    add = parser.add_argument
    add("results", type=Path, metavar="RESULTS", help="a results file")
    add(
        "case",
        metavar="CASE",
        help="name of a case or model in it, or a regular expression that only one case has a "
        "match for",
    )
    add("--backend", help="the competitor, e.g. iree:llvm-cpu, where the case was run by several")
    add_options(
        parser, "device", default=None, help="the device, where the case was run on several"
    )
    add_options(
        parser,
        "output",
        metavar="DIR",
        help="directory to make (default: repro-<model>-<competitor>); it must be new or empty",
    )
    add(
        *spellings("--recorded-python"),
        action="store_true",
        help="run the interpreter that the results file names, for a result of `cbs run --env`; "
        "only for a file that you trust",
    )
    add(
        "--check",
        action="store_true",
        help="run the reproducer once here and write down what it gave",
    )
    add_options(parser, "suite", "root_dir")
    add_options(
        parser,
        "timeout",
        default=1800.0,
        help="for the export, and for the check (default 1800)",
    )
    add_options(
        parser,
        "memory_limit",
        help="memory of the export, e.g. 8G (default: what is available, less 1G)",
    )
