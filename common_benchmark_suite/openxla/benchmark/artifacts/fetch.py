"""Published models into the local cache: in parallel, continued, checked, bounded."""

import functools
import shutil
from collections.abc import Iterable, Sequence

import attrs

from openxla.benchmark.artifacts import manifest as manifests
from openxla.benchmark.artifacts.cache import Cache, is_unchanged
from openxla.benchmark.artifacts.download import Transfer, Wanted, download
from openxla.benchmark.artifacts.fetch_options import (
    FetchedModel,
    FetchError,
    FetchOptions,
    Source,
)
from openxla.benchmark.artifacts.lock_file import LockedModel, locked
from openxla.benchmark.artifacts.manifest import MANIFEST_FILE, Manifest
from openxla.benchmark.artifacts.parallel import Outcomes, run_all
from openxla.benchmark.artifacts.progress import Meter, human_bytes
from openxla.benchmark.artifacts.stores import (
    Deadline,
    NoSpaceError,
    Store,
    StoreError,
    Stores,
    TransientError,
)

__all__ = ["FetchError", "FetchOptions", "FetchedModel", "Source", "fetch", "lock_published"]

# A disk that is full to the last byte stops other programs.
_SPARE_BYTES = 64 << 20


def fetch(
    sources: Sequence[Source], *, cache: Cache | None = None, options: FetchOptions | None = None
) -> list[FetchedModel]:
    """Returns models whose files are in the cache, in the order of the sources.

    What is there already, with the size and time that it had when its digest was computed, is
    not touched and needs no network; `Cache.verify` computes digests anew. What several models
    share is fetched once.

    Raises:
      FetchError: some can not be had, or what is there is not what is locked.
      NoSpaceError: they do not fit on the disk or into `max_bytes`; nothing was begun.
    """
    cache, options = cache or Cache(), options or FetchOptions()
    deadline = Deadline(options.deadline_s)
    stores = Stores(options.store_options(deadline))
    read = _manifests(sources, stores, cache, options)
    errors = dict(read.errors)
    known = [
        (source, read.results[_key(source)]) for source in sources if _key(source) in read.results
    ]
    wanted = _wanted(known, stores, cache, options)
    _check_space(wanted.values(), cache, options)
    meter = Meter(
        total_bytes=sum(item.size_bytes for item in wanted.values()),
        total_files=len(wanted),
        on_progress=options.on_progress,
    )
    transfer = options.transfer(deadline, meter)
    got = run_all(
        {item.url: functools.partial(_download, item, cache, transfer) for item in wanted.values()},
        parallel=options.parallel,
        deadline=deadline,
    )
    errors |= got.errors
    lost = {sha256 for sha256, item in wanted.items() if item.url in got.errors}
    fetched = [
        _named(model, cache, options)
        for _, model in known
        if lost.isdisjoint(file.sha256 for file in filter(options.takes, model.manifest.files))
    ]
    if errors:
        raise FetchError(errors, fetched)
    return fetched


def lock_published(
    urls: Iterable[str], *, cache: Cache | None = None, options: FetchOptions | None = None
) -> dict[str, LockedModel]:
    """Returns what a lock file needs of models that are published now, by their names.

    Raises:
      FetchError: a manifest can not be had, or two URLs have the same model.
    """
    cache, options = cache or Cache(), options or FetchOptions()
    stores = Stores(options.store_options(Deadline(options.deadline_s)))
    sources = [Source(url=url.rstrip("/")) for url in urls]
    read = _manifests(sources, stores, cache, options)
    if read.errors:
        raise FetchError(read.errors)
    found: dict[str, LockedModel] = {}
    for source in sources:
        text = read.results[_key(source)].text
        model, entry = locked(source.url, text)
        if found.setdefault(model, entry) != entry:
            error = StoreError(f"{entry.url} and {found[model].url} are both {model}; lock one")
            raise FetchError({source.url: error})
    return found


@attrs.frozen
class _Model:
    """A manifest and the digest of the document that it was read from."""

    manifest: Manifest
    sha256: str
    text: bytes


def _manifests(
    sources: Sequence[Source], stores: Stores, cache: Cache, options: FetchOptions
) -> Outcomes[_Model]:
    return run_all(
        {
            _key(source): functools.partial(_manifest_of, source, stores, cache, options)
            for source in sources
        },
        parallel=options.parallel,
        deadline=stores.options.deadline,
    )


def _manifest_of(source: Source, stores: Stores, cache: Cache, options: FetchOptions) -> _Model:
    deadline = stores.options.deadline
    lock = source.lock
    if lock is None:
        text = _read_small(stores.at(source.url), options, deadline)
        sha256 = cache.keep_bytes(text)
    else:
        sha256 = lock.manifest_sha256
        if not cache.holds(sha256, lock.manifest_size_bytes):
            wanted = Wanted(
                store=stores.at(source.url),
                name=MANIFEST_FILE,
                sha256=sha256,
                size_bytes=lock.manifest_size_bytes,
            )
            meter = Meter(total_bytes=lock.manifest_size_bytes, total_files=1)
            download(wanted, cache, options.transfer(deadline, meter))
        text = cache.object_path(sha256).read_bytes()
    manifest = manifests.parse(text, where=f"{source.url}/{MANIFEST_FILE}")
    options.notify("manifest", manifest.model)
    return _Model(manifest, sha256, text)


def _read_small(store: Store, options: FetchOptions, deadline: Deadline) -> bytes:
    """Returns a document whose digest nobody knows yet: what is there now is what it is."""
    meter = Meter(total_bytes=0, total_files=0)
    transfer = options.transfer(deadline, meter)
    retry, url = transfer.retry(), store.url_of(MANIFEST_FILE)
    while True:
        try:
            return read_whole(store, MANIFEST_FILE, manifests.MOST_MANIFEST_BYTES, deadline)
        except TransientError as error:
            retry = transfer.pause(retry, error, url)


def read_whole(store: Store, name: str, most_bytes: int, deadline: Deadline) -> bytes:
    """Returns an object that fits into memory.

    Raises:
      TransientError: the connection broke, or ended before the announced size.
      StoreError: it is longer than `most_bytes`.
    """
    url, pieces, size = store.url_of(name), [], 0
    with store.open(name) as body:
        while piece := body.read(1 << 18):
            pieces.append(piece)
            size += len(piece)
            if size > most_bytes:
                raise StoreError(f"{url} is longer than {human_bytes(most_bytes)}; not read")
            deadline.check(url)
        if body.total_bytes not in (None, size):
            raise TransientError(f"{url}: the connection ended after {size} bytes")
    return b"".join(pieces)


def _wanted(
    models: Sequence[tuple[Source, _Model]], stores: Stores, cache: Cache, options: FetchOptions
) -> dict[str, Wanted]:
    """Returns what is to be fetched, by digest: each content once."""
    found: dict[str, Wanted] = {}
    for source, model in models:
        view = cache.view(model.manifest.model, model.sha256)
        store: Store | None = None
        for file in filter(options.takes, model.manifest.files):
            if is_unchanged(view / file.path, file.sha256, file.size_bytes):
                continue
            store = store or stores.at(source.url)
            found[file.sha256] = Wanted(
                store=store, name=file.path, sha256=file.sha256, size_bytes=file.size_bytes
            )
    return found


def _check_space(wanted: Iterable[Wanted], cache: Cache, options: FetchOptions) -> None:
    missing = sum(cache.missing_bytes(item.sha256, item.size_bytes) for item in wanted)
    if options.max_bytes is not None and missing > options.max_bytes:
        raise NoSpaceError(
            f"{human_bytes(missing)} are to be fetched, the limit is "
            f"{human_bytes(options.max_bytes)}; raise it, or select fewer models or types"
        )
    if not missing:
        return
    cache.directory.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache.directory).free
    if missing + _SPARE_BYTES > free:
        raise NoSpaceError(
            f"{human_bytes(missing)} are to be fetched into {cache.directory}, where "
            f"{human_bytes(free)} are free; free some space, or put the artifact root elsewhere"
        )


def _download(wanted: Wanted, cache: Cache, transfer: Transfer) -> None:
    download(wanted, cache, transfer)
    transfer.meter.finished_file()


def _named(model: _Model, cache: Cache, options: FetchOptions) -> FetchedModel:
    view = cache.view(model.manifest.model, model.sha256)
    cache.link(model.sha256, len(model.text), view / MANIFEST_FILE)
    files = {}
    for file in filter(options.takes, model.manifest.files):
        files[file.path] = view / file.path
        try:
            cache.link(file.sha256, file.size_bytes, files[file.path])
        except OSError as error:
            raise StoreError(f"{files[file.path]} can not be made ({error}); run again") from error
        options.notify("linked", file.path)
    return FetchedModel(
        directory=view, manifest=model.manifest, manifest_sha256=model.sha256, files=files
    )


def _key(source: Source) -> str:
    """Returns a name for a manifest; one URL may have been locked at different times."""
    url = f"{source.url}/{MANIFEST_FILE}"
    return url if source.lock is None else f"{url} (sha256 {source.lock.manifest_sha256[:16]})"
