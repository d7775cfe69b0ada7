#!/usr/bin/env python3
"""Single files in a store (gs://, a directory): results and pages of nights, which are no models.

store.py put URL FILE NAME         writes FILE as URL/NAME; the same content again changes nothing
store.py sync URL PREFIX DIR       fetches the objects below a prefix that DIR does not hold yet
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
    """Does what the command line says; 1 with a sentence if the store will not."""
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
    sync.add_argument("--suffix", default="", help="copy only names with this ending")
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
    """Writes a file as an object, and has the store confirm it.

    Raises:
      StoreError: another content has that name, or the store will not.
    """
    file = digested(path)
    # An earlier attempt, whose answer got lost, is fine if it was the same.
    with contextlib.suppress(AlreadyExistsError):
        store.put(name, file, lambda _: None)
    store.check(name, file)
    print(f"published {store.url_of(name)}")


def fetch_missing(store: Store, prefix: str, directory: Path, suffix: str) -> None:
    """Fetches the objects that a folder has not, each under its name there.

    Raises:
      StoreError: one cannot be fetched; those before it stay.
    """
    found = {name: size for name, size in store.sizes(prefix).items() if name.endswith(suffix)}
    missing = [name for name in found if not path_of(directory, name).is_file()]
    for name in missing:
        fetch(store, name, found[name], path_of(directory, name))
    print(f"{len(found)} below {store.url}/{prefix}, {len(missing)} of them new")


def path_of(directory: Path, name: str) -> Path:
    """Returns where an object lies in a folder; never outside of it.

    Raises:
      StoreError: the name would lead out.
    """
    parts = PurePosixPath(name).parts
    if not parts or any(part in ("..", "/") for part in parts):
        raise StoreError(f"{name!r} is not a valid file name below {directory}")
    return directory.joinpath(*parts)


def fetch(store: Store, name: str, size_bytes: int, path: Path) -> None:
    """Fetches an object; the file has its name only when it is whole.

    Raises:
      StoreError: the store will not, though asked several times.
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
