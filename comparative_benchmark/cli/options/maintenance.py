"""Options of `cbs doctor`, `artifacts`, and commands that add or check models and plug-ins."""

import argparse
from collections.abc import Callable
from pathlib import Path

from comparative_benchmark.cli.options.parsing import add_options, spellings
from comparative_benchmark.request import count, seconds, size


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs doctor`."""
    parser.add_argument(
        "--ceilings",
        action="store_true",
        help="also measure and save the rates of the fastest matrix product and memory copy "
        "(takes one to two minutes)",
    )
    add_options(
        parser,
        "device",
        help="device whose ceilings to measure, e.g. host-gpu (default: %(default)s)",
    )
    parser.add_argument(
        *spellings("--noise-floor"),
        nargs="+",
        type=Path,
        metavar="RESULTS.json",
        help="also save the noise floor: differences between unchanged programs in these results",
    )
    # Accept any number: the command counts the CPUs, and reports a number that is too large.
    add_options(
        parser,
        "threads",
        type=int,
        help="number of threads for measuring CPU ceilings (default: physical cores)",
    )
    parser.add_argument(
        "--budget",
        type=seconds,
        metavar="S",
        help="time limit in seconds for --ceilings (default: no limit); ceilings not measured by "
        "then are skipped",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with code 2 if there is a warning or a problem"
    )
    add_options(parser, "json", "root_dir")


def add_new_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs new-model`."""
    parser.add_argument("name", help="model name, e.g. my_mlp; must be a valid Python module name")
    parser.add_argument(
        "--torchbench",
        action="store_true",
        help="write a TorchBench model folder, to the current directory or to --into",
    )
    add_options(
        parser,
        "framework",
        default="pt,jax",
        help="frameworks to write the model for, e.g. pt,jax,tf (default: %(default)s)",
    )
    parser.add_argument(
        "--into",
        type=Path,
        help="checkout to write to (default: the checkout that contains the current directory)",
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
        help="directory to write the package to (default: the current directory)",
    )
    parser.set_defaults(kind=kind)


def add_ci_template_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs ci-template`."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="model, as in `cbs run`, or a directory that `cbs run --save-as` wrote (default: the "
        "only such directory in the current one)",
    )
    parser.add_argument(
        "--backend",
        default="pt_inductor,onnxruntime",
        help="backends, as in `cbs run` (default: %(default)s)",
    )
    parser.add_argument(
        "--install",
        metavar="SPEC",
        help="requirement to install with pip on GitHub's runners (default: the current revision "
        "of the suite, with the extras pt-inductor and onnxruntime)",
    )


def add_check_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs check-model`."""
    parser.add_argument("name", nargs="?", help="name of the model's directory, e.g. bert")
    parser.add_argument(
        "--torchbench",
        action="append",
        type=Path,
        metavar="PATH",
        help="TorchBench model folder, or a directory of model folders, to check instead of a "
        "model in the suite; may be repeated",
    )
    add_options(parser, "framework")
    parser.add_argument(
        "--install",
        action="store_true",
        help="also install each requirements.txt into a fresh environment, from the package index. "
        "With --torchbench, first run each folder's install.py in a separate environment",
    )
    add_options(parser, "device", help="device for --torchbench (default: host-cpu)")
    add_options(parser, "suite", "root_dir")
    add_options(
        parser, "timeout", default=600.0, help="time limit in seconds for a worker (default: 600)"
    )


def add_artifacts_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `cbs artifacts`."""
    commands = parser.add_subparsers(dest="artifacts_command", required=True, metavar="COMMAND")
    for name, (text, add) in _SUBCOMMANDS.items():
        subcommand = commands.add_parser(name, help=text)
        add(subcommand)
        subcommand.set_defaults(subcommand=f"comparative_benchmark.cli.commands.artifacts:{name}")


def add_generate_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs artifacts generate`."""
    add = parser.add_argument
    _add_model_name(parser, "regular expression that matches a whole model name")
    text = "framework of the models: pt, jax, tf or tflite (default: all)"
    add_options(parser, "framework", help=text)
    add_options(
        parser,
        "output",
        required=True,
        metavar="DIR",
        help="directory to write to; each model gets a subdirectory with its name",
    )
    add(
        "--types",
        help="artifact types, e.g. stablehlo_mlir,onnx (default: all types that the model can be "
        "exported to, except vmfb_cuda)",
    )
    add(
        "--jobs",
        type=count(1),
        default=1,
        metavar="N",
        help="number of parallel exports for a model (default: 1). Each export may need twice the "
        "model's memory",
    )
    add("--resume", action="store_true", help="skip models whose directory already exists")
    add(
        *spellings("--record-types"),
        action="store_true",
        help="record each model's successful and failed exports in the suite's definitions",
    )
    add_options(parser, "suite", "root_dir")
    text = "number of threads for each export process (default: 1)"
    add_options(parser, "threads", default=1, metavar="N", help=text)
    add_options(
        parser,
        "timeout",
        default=1800.0,
        help="time limit in seconds for each export process (default: 1800)",
    )
    add_options(
        parser,
        "memory_limit",
        help="memory limit for each export process, e.g. 8G (default: available memory minus 1G, "
        "divided by --jobs)",
    )
    add_options(parser, "verbose", help="print log paths and tracebacks")


def _add_publish(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIRECTORY",
        help="model directory with a manifest.json, or a directory of several model directories",
    )
    parser.add_argument(
        "url",
        metavar="URL",
        help="destination: gs://bucket/folder, file:///folder or a directory. If there are "
        "several models, each gets a subdirectory with its name",
    )
    add_options(parser, "dry_run")
    parser.add_argument(
        *spellings("--auto-upload"),
        action="store_true",
        help="remove the local files once the store has confirmed all their digests",
    )
    parser.add_argument(
        "--lock", type=Path, metavar="FILE", help="lock file to record the published artifacts in"
    )
    _add_transfer(parser)


def _add_lock(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "urls", nargs="+", metavar="URL", help="URL of a model directory in a store"
    )
    add_options(
        parser,
        "output",
        required=True,
        metavar="FILE",
        help="lock file to write or update, e.g. artifacts/locks/jax.json",
    )
    _add_transfer(parser)
    add_options(parser, "root_dir", metavar="DIR")


def _add_fetch(parser: argparse.ArgumentParser) -> None:
    _add_model_name(
        parser, "regular expression that matches the whole name of a model or of one of its cases"
    )
    parser.add_argument(
        "--url",
        action="append",
        default=[],
        metavar="URL",
        help="URL to fetch artifacts from, even if they are not locked; may be repeated",
    )
    parser.add_argument("--types", help="artifact types, e.g. inputs,onnx (default: all)")
    parser.add_argument(
        *spellings("--max-size"),
        type=size,
        metavar="SIZE",
        help="maximum total size of the download, e.g. 10G (default: the free disk space)",
    )
    _add_transfer(parser)
    add_options(parser, "root_dir", metavar="DIR")


def _add_listing(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "json")
    add_options(parser, "root_dir", metavar="DIR")


def _add_gc(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "dry_run")
    parser.add_argument(
        "--unlocked", action="store_true", help="also remove models that are not in any lock file"
    )
    add_options(parser, "root_dir", metavar="DIR")


def _add_rm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", nargs="+", metavar="MODEL", help="model name, as printed by `cbs artifacts ls`"
    )
    add_options(parser, "root_dir", metavar="DIR")


def _add_model_name(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(*spellings("-name", "--model-name"), dest="name", help=text)


def _add_transfer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--deadline",
        type=seconds,
        default=3600.0,
        metavar="S",
        help="time limit in seconds for all transfers (default: 3600); received data is kept",
    )
    parser.add_argument("--anonymous", action="store_true", help="do not use credentials")


# Help text and options of each subcommand; the handler in `cli.commands.artifacts` has its name.
_SUBCOMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "generate": ("export models and verify the exported files", add_generate_arguments),
    "publish": ("publish artifacts to a store, where they are immutable", _add_publish),
    "lock": ("record which published artifacts the suite uses", _add_lock),
    "fetch": ("fetch locked artifacts into the local cache", _add_fetch),
    "ls": (
        "list the models in the local cache, with their sizes and the workloads that use them",
        _add_listing,
    ),
    "verify": ("recompute all digests, and remove damaged files from the cache", _add_listing),
    "gc": ("delete cached files that no model needs", _add_gc),
    "rm": ("remove models from the local cache", _add_rm),
}
