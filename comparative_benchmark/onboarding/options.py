"""Options of `cbs new-model` and `cbs check-model`; apart from the commands, to load fast."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.options import seconds, spellings


def add_new_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs new-model`."""
    parser.add_argument("name", help="the model's name, e.g. my_mlp: a Python module's")
    parser.add_argument(
        "--framework",
        default="pt,jax",
        help="frameworks to write it for: pt, jax, tf (default %(default)s)",
    )
    parser.add_argument(
        "--into",
        type=Path,
        help="the checkout to write into (default: the one that this folder is in)",
    )


def add_check_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs check-model`."""
    parser.add_argument("name", help="the model's name: that of its folder, e.g. bert")
    parser.add_argument(
        "--framework", help="frameworks to check, e.g. pt,jax (default: all that it is written in)"
    )
    parser.add_argument(
        "--install",
        action="store_true",
        help="also install each requirements.txt into a fresh environment (needs the index)",
    )
    parser.add_argument(
        "--suite",
        action="append",
        default=[],
        metavar="MODULE",
        help="a further module with ALL_BENCHMARKS",
    )
    parser.add_argument(
        *spellings("--root-dir"), dest="root_dir", type=Path, help="as in `cbs run`"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=600.0,
        metavar="S",
        help="for a worker (default 600)",
    )
