"""The OpenXLA suite's archives beside a model's URL: `inputs_npy.tgz` and `outputs_npy.tgz`."""

import sys
from typing import Any

import numpy.typing as npt

from openxla.benchmark.artifacts import archives, arrays
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.download import FetchOptions, Transfer, Wanted, download
from openxla.benchmark.artifacts.progress import Meter
from openxla.benchmark.artifacts.stores import Stores

_STEMS = {"inputs_npy.tgz": "input", "outputs_npy.tgz": "output"}


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
      StoreError: it cannot be had.
      ArchiveError: it is damaged, or holds what it must not.
    """
    cache, options, stem = cache or Cache(), options or FetchOptions(), _STEMS[archive]
    stores = Stores(options)
    most = sys.maxsize if options.max_bytes is None else options.max_bytes
    wanted = Wanted(store=stores.at(url), name=archive, sha256=None, size_bytes=most)
    transfer = Transfer(options, stores.deadline, Meter(total_bytes=0, total_files=1))
    sha256 = download(wanted, cache, transfer)
    target = cache.directory / "unpacked" / sha256
    with cache.lock(sha256):
        if not target.is_dir():
            archives.unpack(cache.object_path(sha256), target, limits=limits)
    found = arrays.load_all(target, stem)
    if not found:
        raise archives.ArchiveError(f"{url}/{archive} contains no {stem}_0.npy")
    return found
