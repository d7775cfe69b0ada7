"""Options of `cbs new-model` and `cbs check-model`; apart from the commands, to load fast."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.options import add_options


def add_new_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs new-model`."""
    parser.add_argument("name", help="the model's name, e.g. my_mlp: a Python module's")
    parser.add_argument(
        "--torchbench",
        action="store_true",
        help="write a model folder of TorchBench, into this directory or that of --into",
    )
    add_options(
        parser,
        "framework",
        default="pt,jax",
        help="frameworks to write it for: pt, jax, tf (default %(default)s)",
    )
    parser.add_argument(
        "--into",
        type=Path,
        help="the checkout to write into (default: the one that this folder is in)",
    )


def add_ci_template_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs ci-template`."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="a model as `cbs run` takes it, or a folder of `--save-as` (default: the only such "
        "folder here)",
    )
    parser.add_argument(
        "--backend",
        default="pt_inductor,onnxruntime",
        help="as in `cbs run` (default %(default)s)",
    )
    parser.add_argument(
        "--install",
        metavar="SPEC",
        help="requirement that pip installs for these backends (default: extras pt-inductor and "
        "onnxruntime of this revision)",
    )


def add_check_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs check-model`."""
    parser.add_argument("name", nargs="?", help="the model's name: that of its folder, e.g. bert")
    parser.add_argument(
        "--torchbench",
        action="append",
        type=Path,
        metavar="PATH",
        help="check model folders of TorchBench in place of a model of ours: a folder, or a "
        "directory of them; may be repeated",
    )
    add_options(
        parser,
        "framework",
        help="frameworks to check, e.g. pt,jax (default: all that it is written in)",
    )
    parser.add_argument(
        "--install",
        action="store_true",
        help="also install each requirements.txt into a fresh environment (needs the index); of "
        "folders, first run install.py in an environment of its own",
    )
    add_options(parser, "suite", "root_dir")
    add_options(parser, "timeout", default=600.0, help="for a worker (default 600)")
