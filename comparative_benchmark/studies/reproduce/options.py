"""Options of `cbs repro`, separate so that other commands need not import the command."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.arguments import add_options, spellings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs repro`."""
    add = parser.add_argument
    add("results", type=Path, metavar="RESULTS", help="results file")
    add(
        "case",
        metavar="CASE",
        help="name of a case or model in the file, or a regular expression that matches only one "
        "case",
    )
    add("--backend", help="competitor, e.g. iree:llvm-cpu, if several ran the case")
    add_options(parser, "device", default=None, help="device, if the case ran on several")
    add_options(
        parser,
        "output",
        metavar="DIR",
        help="directory to create (default: repro-<model>-<competitor>); it must be new or empty",
    )
    add(
        *spellings("--recorded-python"),
        action="store_true",
        help="for a result of `cbs run --env`, run the interpreter named in the results file. Use "
        "this only with a file that you trust",
    )
    add(
        "--check",
        action="store_true",
        help="run the reproducer once here, and add its output to the README",
    )
    add_options(parser, "suite", "root_dir")
    add_options(
        parser,
        "timeout",
        default=1800.0,
        help="seconds for the export and for the check, each (default: 1800)",
    )
    add_options(
        parser,
        "memory_limit",
        help="memory limit of the export, e.g. 8G (default: available memory minus 1G)",
    )
