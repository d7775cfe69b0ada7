"""Options of `cbs artifacts`, and the functions of its subcommands."""

import argparse
import pkgutil
from collections.abc import Callable
from pathlib import Path

from comparative_benchmark.request import count, seconds, size
from comparative_benchmark.terminal.arguments import add_options, spellings
from comparative_benchmark.terminal.options import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands."""
    commands = parser.add_subparsers(dest="artifacts_command", required=True, metavar="COMMAND")
    for name, (text, add, handler) in _SUBCOMMANDS.items():
        subcommand = commands.add_parser(name, help=text)
        add(subcommand)
        subcommand.set_defaults(subcommand=f"{__package__}.{handler}")


def run(options: argparse.Namespace) -> int:
    """Runs a subcommand; returns its exit code.

    Raises:
      UsageError: a store or a file failed, or an option is invalid; the message gives the remedy.
    """
    from openxla.benchmark.artifacts.stores import StoreError

    handler: Callable[[argparse.Namespace], int] = pkgutil.resolve_name(options.subcommand)
    try:
        return handler(options)
    except StoreError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise UsageError(f"{name}{error.strerror or error}") from error


def add_generate_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `cbs artifacts generate`."""
    add = parser.add_argument
    _add_name(parser, "regular expression that must match the whole name of a model")
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
    _add_root(parser)


def _add_fetch(parser: argparse.ArgumentParser) -> None:
    _add_name(
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
    _add_root(parser)


def _add_listing(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "json")
    _add_root(parser)


def _add_gc(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "dry_run")
    parser.add_argument(
        "--unlocked", action="store_true", help="also remove models that are in no lock file"
    )
    _add_root(parser)


def _add_rm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", nargs="+", metavar="MODEL", help="model name as printed by `cbs artifacts ls`"
    )
    _add_root(parser)


def _add_name(parser: argparse.ArgumentParser, text: str) -> None:
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


def _add_root(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "root_dir", metavar="DIR")


# Help text, options and handler of each subcommand.
_SUBCOMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], str]] = {
    "generate": (
        "export models and verify the exported files",
        add_generate_arguments,
        "generate:run",
    ),
    "publish": (
        "publish artifacts to a store, where they never change",
        _add_publish,
        "publishing:publish",
    ),
    "lock": (
        "record which published artifacts the suite uses",
        _add_lock,
        "publishing:lock",
    ),
    "fetch": ("fetch locked artifacts into the local cache", _add_fetch, "fetching:fetch"),
    "ls": (
        "list the models in the local cache, with their sizes and the workloads that use them",
        _add_listing,
        "cache_commands:ls",
    ),
    "verify": (
        "compute all digests again, and remove damaged files from the cache",
        _add_listing,
        "cache_commands:verify",
    ),
    "gc": ("delete files that no model in the cache needs", _add_gc, "cache_commands:gc"),
    "rm": ("remove models from the local cache", _add_rm, "cache_commands:rm"),
}
