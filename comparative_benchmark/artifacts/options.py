"""Options of `cbs artifacts`, and which function each subcommand is."""

import argparse
import pkgutil
from collections.abc import Callable
from pathlib import Path

from comparative_benchmark.terminal.options import (
    UsageError,
    add_options,
    count,
    seconds,
    size,
    spellings,
)


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
      UsageError: a store, a file or the user's own words stood in the way; the message says which
        and what to do next.
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
        help="where each model gets a directory of its name",
    )
    add("--types", help="types of artifacts, e.g. stablehlo_mlir,onnx (default: all that can be)")
    add(
        "--jobs",
        type=count(1),
        default=1,
        metavar="N",
        help="exports of a model at once (default 1); each may take the memory of the model twice",
    )
    add("--resume", action="store_true", help="leave out models whose directory is there")
    add(
        *spellings("--record-types"),
        action="store_true",
        help="write what the directories prove of their models into the suite's definitions",
    )
    add_options(parser, "suite", "root_dir")
    add_options(parser, "threads", default=1, metavar="N", help="of each process (default 1)")
    add_options(
        parser, "timeout", default=1800.0, help="for each process of an export (default 1800)"
    )
    add_options(
        parser,
        "memory_limit",
        help="memory of each process, e.g. 8G (default: what is available, less 1G)",
    )
    add_options(parser, "verbose", help="print log files and tracebacks of failures")


def _add_publish(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIRECTORY",
        help="of a model, with its manifest.json; or of several such directories",
    )
    parser.add_argument(
        "url",
        metavar="URL",
        help="gs://bucket/folder, file:///folder or the path of a directory; of several models, "
        "each gets a folder of its name in there",
    )
    add_options(parser, "dry_run")
    parser.add_argument(
        *spellings("--auto-upload"),
        action="store_true",
        help="remove the files here once the store has confirmed the digest of each",
    )
    parser.add_argument(
        "--lock", type=Path, metavar="FILE", help="lock what was published in this file"
    )
    _add_transfer(parser)


def _add_lock(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("urls", nargs="+", metavar="URL", help="of a model's directory in a store")
    add_options(
        parser,
        "output",
        required=True,
        metavar="FILE",
        help="lock file, e.g. artifacts/locks/jax.json; other entries of it stay",
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
        help="what is published there now, locked or not; may be repeated",
    )
    parser.add_argument("--types", help="types of artifacts, e.g. inputs,onnx (default: all)")
    parser.add_argument(
        *spellings("--max-size"),
        type=size,
        metavar="SIZE",
        help="refuse to transfer more, e.g. 10G (default: what fits on the disk)",
    )
    _add_transfer(parser)
    _add_root(parser)


def _add_listing(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "json")
    _add_root(parser)


def _add_gc(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "dry_run")
    parser.add_argument(
        "--unlocked", action="store_true", help="models that no lock file names go, too"
    )
    _add_root(parser)


def _add_rm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", metavar="MODEL", help="as `ls` names it")
    _add_root(parser)


def _add_name(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(*spellings("-name", "--model-name"), dest="name", help=text)


def _add_transfer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--deadline",
        type=seconds,
        default=3600.0,
        metavar="S",
        help="for everything together (default 3600); what has arrived is kept",
    )
    parser.add_argument("--anonymous", action="store_true", help="use no credentials")


def _add_root(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "root_dir", metavar="DIR")


# What each is for, which options it has, and where its handler is.
_SUBCOMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], str]] = {
    "generate": (
        "export models and verify what came out",
        add_generate_arguments,
        "generate:run",
    ),
    "publish": ("write a model's artifacts to a store, once", _add_publish, "publishing:publish"),
    "lock": (
        "write down which published artifacts the suite uses",
        _add_lock,
        "publishing:lock",
    ),
    "fetch": ("bring locked artifacts into the local cache", _add_fetch, "fetching:fetch"),
    "ls": (
        "what is in the local cache, how large, and who uses it",
        _add_listing,
        "cache_commands:ls",
    ),
    "verify": (
        "compute every digest anew; drop from the cache what is bad",
        _add_listing,
        "cache_commands:verify",
    ),
    "gc": ("free what no model in the cache needs", _add_gc, "cache_commands:gc"),
    "rm": ("remove models from the local cache", _add_rm, "cache_commands:rm"),
}
