#!/usr/bin/env python3
"""Copies single files to and from a store (gs:// or a directory), e.g. nightly results and pages.

store.py put URL FILE NAME         writes FILE as URL/NAME; the same content again changes nothing
store.py sync URL PREFIX DIR       fetches the objects below a prefix that DIR does not contain
store.py list URL [PREFIX]         prints names and sizes
"""

import argparse
import contextlib
import sys
import time
from pathlib import Path, PurePosixPath

from openxla.benchmark.artifacts.publish import digested
from openxla.benchmark.artifacts.stores import (
    AlreadyExistsError,
    Store,
    StoreError,
    Stores,
    TransientError,
)
from openxla.benchmark.files import new_file

_CHUNK_BYTES = 1 << 20
_ATTEMPTS = 4


def main() -> int:
    """Runs the command; prints an error and returns 1 if the store refuses."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    put = commands.add_parser("put")
    put.add_argument("url")
    put.add_argument("file", type=Path)
    put.add_argument("name")
    sync = commands.add_parser("sync")
    sync.add_argument("url")
    sync.add_argument("prefix")
    sync.add_argument("directory", type=Path)
    sync.add_argument("--suffix", default="", help="copy only files with this suffix")
    listing = commands.add_parser("list")
    listing.add_argument("url")
    listing.add_argument("prefix", nargs="?", default="")
    options = parser.parse_args()
    try:
        store = Stores().at(options.url)
        if options.command == "put":
            put_file(store, options.file, options.name)
        elif options.command == "sync":
            fetch_missing(store, options.prefix, options.directory, options.suffix)
        else:
            for name, size_bytes in store.sizes(options.prefix).items():
                print(f"{size_bytes:>12}  {name}")
    except (StoreError, OSError) as error:
        print(f"store: {error}", file=sys.stderr)
        return 1
    return 0


def put_file(store: Store, path: Path, name: str) -> None:
    """Writes a file as an object and checks the object in the store.

    Raises:
      StoreError: the name exists with other content, or the store refuses.
    """
    file = digested(path)
    # An earlier attempt may have succeeded without a response; the same content is fine.
    with contextlib.suppress(AlreadyExistsError):
        store.put(name, file, lambda _: None)
    store.check(name, file)
    print(f"published {store.url_of(name)}")


def fetch_missing(store: Store, prefix: str, directory: Path, suffix: str) -> None:
    """Fetches the objects that a folder lacks, each under its name in the store.

    Raises:
      StoreError: an object cannot be fetched; previous ones stay.
    """
    found = {name: size for name, size in store.sizes(prefix).items() if name.endswith(suffix)}
    missing = [name for name in found if not path_of(directory, name).is_file()]
    for name in missing:
        fetch(store, name, found[name], path_of(directory, name))
    print(f"files below {store.url}/{prefix}: {len(found)}, {len(missing)} of them new")


def path_of(directory: Path, name: str) -> Path:
    """Returns the path of an object in a folder, never outside it.

    Raises:
      StoreError: the path would be outside the folder.
    """
    parts = PurePosixPath(name).parts
    if not parts or any(part in ("..", "/") for part in parts):
        raise StoreError(f"{name!r} is not a valid file name below {directory}")
    return directory.joinpath(*parts)


def fetch(store: Store, name: str, size_bytes: int, path: Path) -> None:
    """Fetches an object; renames the file when it is complete.

    Raises:
      StoreError: the store refuses after several attempts.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(_ATTEMPTS):
        try:
            with new_file(path) as temporary, store.open(name) as body:
                with temporary.open("wb") as file:
                    while piece := body.read(_CHUNK_BYTES):
                        file.write(piece)
                if temporary.stat().st_size != size_bytes:
                    raise TransientError(f"{store.url_of(name)} is incomplete")
            return
        except TransientError:
            if attempt + 1 == _ATTEMPTS:
                raise
            time.sleep(2**attempt)


if __name__ == "__main__":
    sys.exit(main())
