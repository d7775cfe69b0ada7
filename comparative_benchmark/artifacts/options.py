"""Options of `cbs artifacts`, and which function each subcommand is."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from comparative_benchmark.artifacts import generate
from comparative_benchmark.terminal.options import UsageError, seconds, size, spellings
from openxla.benchmark.root import ROOT_DIR_VARIABLE

Add = Callable[..., argparse.ArgumentParser]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands."""
    commands = parser.add_subparsers(dest="artifacts_command", required=True, metavar="COMMAND")
    making = commands.add_parser("generate", help="export models and verify what came out")
    generate.add_arguments(making)
    _add_publish(commands.add_parser)
    _add_lock(commands.add_parser)
    _add_fetch(commands.add_parser)
    _add_ls(commands.add_parser)
    _add_verify(commands.add_parser)
    _add_gc(commands.add_parser)
    _add_rm(commands.add_parser)


def run(options: argparse.Namespace) -> int:
    """Runs a subcommand; returns its exit code.

    Raises:
      UsageError: a store, a file or the user's own words stood in the way; the message says which
        and what to do next.
    """
    from openxla.benchmark.artifacts.stores import StoreError

    if getattr(options, "root_dir", None):
        os.environ[ROOT_DIR_VARIABLE] = str(options.root_dir.absolute())
    try:
        return _HANDLERS[options.artifacts_command](options)
    except StoreError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise UsageError(f"{name}{error.strerror or error}") from error


def _add_publish(add_parser: Add) -> None:
    parser = add_parser("publish", help="write a model's artifacts to a store, once")
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
    parser.add_argument(
        *spellings("--dry-run"), dest="dry_run", action="store_true", help="only say what would be"
    )
    parser.add_argument(
        *spellings("--auto-upload"),
        dest="auto_upload",
        action="store_true",
        help="remove the files here once the store has confirmed the digest of each",
    )
    parser.add_argument(
        "--lock", type=Path, metavar="FILE", help="lock what was published in this file"
    )
    _add_transfer(parser)


def _add_lock(add_parser: Add) -> None:
    parser = add_parser("lock", help="write down which published artifacts the suite uses")
    parser.add_argument("urls", nargs="+", metavar="URL", help="of a model's directory in a store")
    parser.add_argument(
        *spellings("-o", "--output"),
        dest="output",
        type=Path,
        required=True,
        metavar="FILE",
        help="lock file, e.g. artifacts/locks/jax.json; other entries of it stay",
    )
    _add_transfer(parser)
    _add_root(parser)


def _add_fetch(add_parser: Add) -> None:
    parser = add_parser("fetch", help="bring locked artifacts into the local cache")
    parser.add_argument(
        *spellings("-name", "--model-name"),
        dest="name",
        help="regular expression that must match the whole name of a model, or of its case",
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
        dest="max_size",
        type=size,
        metavar="SIZE",
        help="refuse to transfer more, e.g. 10G (default: what fits on the disk)",
    )
    _add_transfer(parser)
    _add_root(parser)


def _add_ls(add_parser: Add) -> None:
    parser = add_parser("ls", help="what is in the local cache, how large, and who uses it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_root(parser)


def _add_verify(add_parser: Add) -> None:
    parser = add_parser("verify", help="compute every digest anew; drop from the cache what is bad")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_root(parser)


def _add_gc(add_parser: Add) -> None:
    parser = add_parser("gc", help="free what no model in the cache needs")
    parser.add_argument(
        *spellings("--dry-run"), dest="dry_run", action="store_true", help="only say what would be"
    )
    parser.add_argument(
        "--unlocked", action="store_true", help="models that no lock file names go, too"
    )
    _add_root(parser)


def _add_rm(add_parser: Add) -> None:
    parser = add_parser("rm", help="remove models from the local cache")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="as `ls` names it")
    _add_root(parser)


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
    parser.add_argument(
        *spellings("--root-dir"), dest="root_dir", type=Path, metavar="DIR", help="as in `cbs run`"
    )


def _generate(options: argparse.Namespace) -> int:
    return generate.run(options)


def _publish(options: argparse.Namespace) -> int:
    from comparative_benchmark.artifacts import publishing

    return publishing.publish(options)


def _lock(options: argparse.Namespace) -> int:
    from comparative_benchmark.artifacts import publishing

    return publishing.lock(options)


def _fetch(options: argparse.Namespace) -> int:
    from comparative_benchmark.artifacts import fetching

    return fetching.fetch(options)


def _cache(options: argparse.Namespace) -> int:
    from comparative_benchmark.artifacts import cache_commands

    handler: Callable[[argparse.Namespace], int] = getattr(
        cache_commands, options.artifacts_command
    )
    return handler(options)


_HANDLERS: dict[str, Callable[[argparse.Namespace], int]] = {
    "generate": _generate,
    "publish": _publish,
    "lock": _lock,
    "fetch": _fetch,
    **dict.fromkeys(("ls", "verify", "gc", "rm"), _cache),
}
