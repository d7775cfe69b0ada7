"""Options of `cbs new-*` and `cbs check-model`, separate so that other commands start fast."""

import argparse
from pathlib import Path

from comparative_benchmark.terminal.arguments import add_options


def add_new_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs new-model`."""
    parser.add_argument("name", help="model name, e.g. my_mlp; must be a Python module name")
    parser.add_argument(
        "--torchbench",
        action="store_true",
        help="write a TorchBench model folder, in the current directory or in --into",
    )
    add_options(
        parser,
        "framework",
        default="pt,jax",
        help="frameworks to write the model for: pt, jax, tf (default: %(default)s)",
    )
    parser.add_argument(
        "--into",
        type=Path,
        help="checkout to write into (default: the one that contains the current directory)",
    )


def add_new_backend_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs new-backend`."""
    _add_new_package_arguments(parser, "backend", "my_backend")


def add_new_recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs new-recipe`."""
    _add_new_package_arguments(parser, "recipe", "int8wo-asym")


def add_new_operator_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs new-operator`."""
    _add_new_package_arguments(parser, "operator", "my_operator")


def _add_new_package_arguments(parser: argparse.ArgumentParser, kind: str, example: str) -> None:
    parser.add_argument("name", help=f"{kind} name, e.g. {example}")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="DIR",
        help="directory in which to make the package (default: the current directory)",
    )
    parser.set_defaults(kind=kind)


def add_ci_template_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs ci-template`."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="model, as in `cbs run`, or a folder that `--save-as` wrote (default: the only such "
        "folder here)",
    )
    parser.add_argument(
        "--backend",
        default="pt_inductor,onnxruntime",
        help="backends, as in `cbs run` (default: %(default)s)",
    )
    parser.add_argument(
        "--install",
        metavar="SPEC",
        help="requirement that pip installs for these backends (default: this revision, with the "
        "extras pt-inductor and onnxruntime)",
    )


def add_check_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs check-model`."""
    parser.add_argument("name", nargs="?", help="name of the model's folder, e.g. bert")
    parser.add_argument(
        "--torchbench",
        action="append",
        type=Path,
        metavar="PATH",
        help="check TorchBench model folders instead of a model of the suite: a folder, or a "
        "directory of folders; may be repeated",
    )
    add_options(
        parser,
        "framework",
        help="frameworks to check, e.g. pt,jax (default: all frameworks of the model)",
    )
    parser.add_argument(
        "--install",
        action="store_true",
        help="also install each requirements.txt into a fresh environment (needs the package "
        "index). With --torchbench: first run each folder's install.py in a separate environment",
    )
    add_options(parser, "suite", "root_dir")
    add_options(
        parser, "timeout", default=600.0, help="time limit of a worker in seconds (default: 600)"
    )
