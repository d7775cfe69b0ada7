"""Options of `cbs repro`; apart from the command, so that other commands do not load it."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.options import seconds, size, spellings


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
    add(
        *spellings("-device", "--target-device"),
        dest="device",
        help="the device, where the case was run on several",
    )
    add(
        *spellings("-o", "--output"),
        dest="output",
        type=Path,
        metavar="DIR",
        help="directory to make (default: repro-<model>-<competitor>); it must be new or empty",
    )
    add(
        *spellings("--recorded-python"),
        dest="recorded_python",
        action="store_true",
        help="run the interpreter that the results file names, for a result of `cbs run --env`; "
        "only for a file that you trust",
    )
    add(
        "--check",
        action="store_true",
        help="run the reproducer once here and write down what it gave",
    )
    add(
        "--suite",
        action="append",
        default=[],
        metavar="MODULE",
        help="a further module with ALL_BENCHMARKS",
    )
    add(*spellings("--root-dir"), dest="root_dir", type=Path, help="as in `cbs run`")
    add(
        "--timeout",
        type=seconds,
        default=1800.0,
        metavar="S",
        help="for the export, and for the check (default 1800)",
    )
    add(
        *spellings("--memory-limit"),
        dest="memory_limit",
        type=size,
        metavar="SIZE",
        help="memory of the export, e.g. 8G (default: what is available, less 1G)",
    )
