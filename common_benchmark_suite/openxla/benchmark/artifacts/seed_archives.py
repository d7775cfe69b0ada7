"""The seed project's archives beside a model's URL: `inputs_npy.tgz` and `outputs_npy.tgz`."""

import hashlib
from pathlib import Path
from typing import Any

import numpy.typing as npt

from openxla.benchmark.artifacts import archives, arrays
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.download import space_errors
from openxla.benchmark.artifacts.fetch import FetchOptions
from openxla.benchmark.artifacts.progress import Meter, human_bytes
from openxla.benchmark.artifacts.stores import (
    Deadline,
    NoSpaceError,
    Store,
    Stores,
    TransientError,
)

INPUTS_ARCHIVE = "inputs_npy.tgz"
OUTPUTS_ARCHIVE = "outputs_npy.tgz"
_STEMS = {INPUTS_ARCHIVE: "input", OUTPUTS_ARCHIVE: "output"}


def read(
    url: str,
    archive: str,
    *,
    cache: Cache | None = None,
    options: FetchOptions | None = None,
    limits: archives.Limits | None = None,
) -> list[npt.NDArray[Any]]:
    """Returns the arrays of an archive below a model's URL, in order.

    Nothing says what its digest should be; content that was unpacked once is not unpacked again.

    Args:
      url: of the model's directory.
      archive: `inputs_npy.tgz` or `outputs_npy.tgz`.
      cache: where to keep it.
      options: how to fetch; `max_bytes` bounds the archive.
      limits: what it may become.

    Raises:
      StoreError: it can not be had.
      ArchiveError: it is damaged, or holds what it must not.
    """
    cache, options = cache or Cache(), options or FetchOptions()
    sha256 = _fetch(url, archive, cache, options)
    target = cache.directory / "unpacked" / sha256
    with cache.lock(sha256):
        if not target.is_dir():
            archives.unpack(cache.object_path(sha256), target, limits=limits)
    found = arrays.load_all(target, _STEMS[archive])
    if not found:
        raise archives.ArchiveError(f"{url}/{archive} holds no {_STEMS[archive]}_0.npy")
    return found


def _fetch(url: str, name: str, cache: Cache, options: FetchOptions) -> str:
    """Brings an object of unknown content into the cache; returns its sha256."""
    deadline = Deadline(options.deadline_s)
    store = Stores(options.store_options(deadline)).at(url)
    transfer = options.transfer(deadline, Meter(total_bytes=0, total_files=1))
    # Whoever fetches the same gathers in the same file.
    key = hashlib.sha256(store.url_of(name).encode()).hexdigest()
    path, retry = cache.partial_path(key), transfer.retry()
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        space_errors(path, store.url_of(name)),
        cache.lock(key).acquire(timeout=deadline.remaining_s()),
    ):
        while True:
            try:
                digest = _gather(url, name, path, store, options, deadline)
                break
            except TransientError as error:
                retry = transfer.pause(retry, error, store.url_of(name))
        cache.keep(path, digest)
    return digest


def _gather(
    url: str, name: str, path: Path, store: Store, options: FetchOptions, deadline: Deadline
) -> str:
    """Reads from the start: the rest of another version would not be noticed."""
    digest, size = hashlib.sha256(), 0
    with store.open(name) as body, path.open("wb") as file:
        while chunk := body.read(1 << 18):
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
            if options.max_bytes is not None and size > options.max_bytes:
                raise NoSpaceError(f"{url}/{name} is larger than {human_bytes(options.max_bytes)}")
            deadline.check(f"{url}/{name}")
    if body.total_bytes not in (None, size):
        raise TransientError(f"{url}/{name}: the connection ended after {size} bytes")
    return digest.hexdigest()
