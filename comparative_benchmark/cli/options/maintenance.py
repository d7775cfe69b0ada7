"""Options of `cbs doctor`, `artifacts`, and the commands that add or check models and plug-ins."""

import argparse
from collections.abc import Callable
from pathlib import Path

from comparative_benchmark.cli.options.parsing import add_options, spellings
from comparative_benchmark.request import count, seconds, size
from openxla.benchmark.installation import ROOT_DIR_VARIABLE


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs doctor`."""
    parser.add_argument(
        "--ceilings",
        action="store_true",
        help="also measure and save the rates of the fastest matrix product and memory copy "
        "(one to two minutes)",
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
        help="also compute and save the differences between unchanged programs in these results",
    )
    # Accept any number: the command counts the CPUs and reports an error if it is too large.
    add_options(
        parser,
        "threads",
        type=int,
        help="threads used to measure CPU ceilings (default: physical cores)",
    )
    parser.add_argument(
        "--budget",
        type=seconds,
        metavar="S",
        help="seconds for all ceilings; rates that do not fit are skipped (default: no limit)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with code 2 on a warning or a problem"
    )
    add_options(parser, "json")
    add_options(parser, "root_dir", help=f"directory of artifacts (default: ${ROOT_DIR_VARIABLE})")


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


def add_artifacts_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands."""
    commands = parser.add_subparsers(dest="artifacts_command", required=True, metavar="COMMAND")
    for name, (text, add) in _SUBCOMMANDS.items():
        subcommand = commands.add_parser(name, help=text)
        add(subcommand)
        subcommand.set_defaults(subcommand=f"comparative_benchmark.cli.commands.artifacts:{name}")


def add_generate_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs artifacts generate`."""
    add = parser.add_argument
    _add_model_name(parser, "regular expression that must match the whole name of a model")
    add_options(
        parser, "framework", help="framework of the models: pt, jax, tf or tflite (default: all)"
    )
    add_options(
        parser,
        "output",
        required=True,
        metavar="DIR",
        help="parent directory; each model gets a directory with its name",
    )
    add(
        "--types",
        help="artifact types, e.g. stablehlo_mlir,onnx (default: all possible types except "
        "vmfb_cuda)",
    )
    add(
        "--jobs",
        type=count(1),
        default=1,
        metavar="N",
        help="parallel exports of a model (default: 1). Each may need twice the memory of the "
        "model",
    )
    add("--resume", action="store_true", help="skip models whose directory exists")
    add(
        *spellings("--record-types"),
        action="store_true",
        help="record in the suite's definitions which types each model was exported to, and which "
        "exports failed",
    )
    add_options(parser, "suite", "root_dir")
    add_options(
        parser, "threads", default=1, metavar="N", help="threads of each process (default: 1)"
    )
    add_options(
        parser,
        "timeout",
        default=1800.0,
        help="seconds for each process of an export (default: 1800)",
    )
    add_options(
        parser,
        "memory_limit",
        help="memory limit of each process, e.g. 8G (default: available memory minus 1G, divided "
        "by --jobs)",
    )
    add_options(parser, "verbose", help="print log files and tracebacks of failures")


def _add_publish(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIRECTORY",
        help="directory of a model, with its manifest.json, or a directory of several models",
    )
    parser.add_argument(
        "url",
        metavar="URL",
        help="destination: gs://bucket/folder, file:///folder or a directory. With several models, "
        "each gets a folder with its name",
    )
    add_options(parser, "dry_run")
    parser.add_argument(
        *spellings("--auto-upload"),
        action="store_true",
        help="remove the local files after the store has confirmed the digest of each",
    )
    parser.add_argument(
        "--lock", type=Path, metavar="FILE", help="lock the published artifacts in this file"
    )
    _add_transfer(parser)


def _add_lock(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "urls", nargs="+", metavar="URL", help="URL of a model's directory in a store"
    )
    add_options(
        parser,
        "output",
        required=True,
        metavar="FILE",
        help="lock file to write, e.g. artifacts/locks/jax.json; its other entries are kept",
    )
    _add_transfer(parser)
    add_options(parser, "root_dir", metavar="DIR")


def _add_fetch(parser: argparse.ArgumentParser) -> None:
    _add_model_name(
        parser, "regular expression that must match the whole name of a model, or of its case"
    )
    parser.add_argument(
        "--url",
        action="append",
        default=[],
        metavar="URL",
        help="fetch the artifacts published at this URL now, locked or not; may be repeated",
    )
    parser.add_argument("--types", help="artifact types, e.g. inputs,onnx (default: all)")
    parser.add_argument(
        *spellings("--max-size"),
        type=size,
        metavar="SIZE",
        help="refuse to transfer more than this, e.g. 10G (default: what fits on the disk)",
    )
    _add_transfer(parser)
    add_options(parser, "root_dir", metavar="DIR")


def _add_listing(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "json")
    add_options(parser, "root_dir", metavar="DIR")


def _add_gc(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "dry_run")
    parser.add_argument(
        "--unlocked", action="store_true", help="also remove models that are in no lock file"
    )
    add_options(parser, "root_dir", metavar="DIR")


def _add_rm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", nargs="+", metavar="MODEL", help="model name as printed by `cbs artifacts ls`"
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
        help="seconds for all transfers together (default: 3600); data received so far is kept",
    )
    parser.add_argument("--anonymous", action="store_true", help="do not use credentials")


# Help text and options of each subcommand; its handler in `cli.commands.artifacts` has its name.
_SUBCOMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "generate": ("export models and verify the exported files", add_generate_arguments),
    "publish": ("publish artifacts to a store, where they never change", _add_publish),
    "lock": ("record which published artifacts the suite uses", _add_lock),
    "fetch": ("fetch locked artifacts into the local cache", _add_fetch),
    "ls": (
        "list the models in the local cache, with their sizes and the workloads that use them",
        _add_listing,
    ),
    "verify": (
        "compute all digests again, and remove damaged files from the cache",
        _add_listing,
    ),
    "gc": ("delete files that no model in the cache needs", _add_gc),
    "rm": ("remove models from the local cache", _add_rm),
}
