"""Published models into the local cache: in parallel, continued, checked, bounded."""

import functools
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from openxla.benchmark.artifacts import manifest as manifests
from openxla.benchmark.artifacts.cache import Cache, is_unchanged
from openxla.benchmark.artifacts.download import Notify, Transfer, Wanted, download
from openxla.benchmark.artifacts.lock_file import LockedModel
from openxla.benchmark.artifacts.manifest import MANIFEST_FILE, ArtifactFile, Manifest
from openxla.benchmark.artifacts.parallel import run_all
from openxla.benchmark.artifacts.progress import Meter, OnProgress, human_bytes
from openxla.benchmark.artifacts.stores import (
    Deadline,
    NoSpaceError,
    Store,
    StoreError,
    StoreOptions,
    Stores,
    TransientError,
)

_MOST_LISTED = 5
# A disk that is full to the last byte stops other programs.
_SPARE_BYTES = 64 << 20


class FetchError(StoreError):
    """Some artifacts can not be had; the others are in the cache.

    Attributes:
      errors: by the URL of the object.
      fetched: the models that are complete.
    """

    def __init__(
        self, errors: Mapping[str, Exception], fetched: Sequence["FetchedModel"] = ()
    ) -> None:
        self.errors, self.fetched = dict(errors), list(fetched)
        lines = [_line(name, error) for name, error in list(self.errors.items())[:_MOST_LISTED]]
        if len(self.errors) > _MOST_LISTED:
            lines.append(f"and {len(self.errors) - _MOST_LISTED} more")
        super().__init__("\n".join([f"{len(self.errors)} could not be fetched:", *lines]))


@attrs.frozen(kw_only=True)
class Source:
    """Where a model's artifacts are.

    Attributes:
      url: of the directory with the manifest.
      lock: what they have to be; None takes what is there now.
    """

    url: str
    lock: LockedModel | None = None

    @classmethod
    def locked(cls, lock: LockedModel) -> "Source":
        """Returns the source that a lock file names."""
        return cls(url=lock.url, lock=lock)


def _nothing(step: str, name: str) -> None:
    """Tells nobody."""


@attrs.frozen(kw_only=True)
class FetchOptions:
    """How to fetch.

    Attributes:
      artifact_types: only files of these types; None means all.
      parallel: files at once.
      deadline_s: for everything together; nothing waits beyond it.
      connect_timeout_s: for one connection.
      read_timeout_s: between two pieces of an answer.
      attempts: in a row that bring nothing, before an object is given up.
      backoff_s: before the third attempt, doubled each time, with jitter. A server that says when
        to come back is asked then.
      max_bytes: refuse to transfer more; None is bounded by the disk alone.
      anonymous: use no credentials.
      on_progress: told a few times a second, from several threads but never two at once.
      notify: told each step of each file.
    """

    artifact_types: frozenset[str] | None = None
    parallel: int = attrs.field(default=8, validator=attrs.validators.ge(1))
    deadline_s: float = attrs.field(default=3600.0, validator=attrs.validators.gt(0))
    connect_timeout_s: float = attrs.field(default=10.0, validator=attrs.validators.gt(0))
    read_timeout_s: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))
    attempts: int = attrs.field(default=5, validator=attrs.validators.ge(1))
    backoff_s: float = attrs.field(default=0.5, validator=attrs.validators.ge(0))
    max_bytes: int | None = None
    anonymous: bool = False
    on_progress: OnProgress | None = None
    notify: Notify = _nothing

    def store_options(self, deadline: Deadline) -> StoreOptions:
        """Returns what stores need to know of it."""
        return StoreOptions(
            deadline=deadline,
            connect_timeout_s=self.connect_timeout_s,
            read_timeout_s=self.read_timeout_s,
            anonymous=self.anonymous,
        )

    def transfer(self, deadline: Deadline, meter: Meter) -> Transfer:
        """Returns what downloads need to know of it."""
        return Transfer(
            deadline=deadline,
            attempts=self.attempts,
            backoff_s=self.backoff_s,
            meter=meter,
            notify=self.notify,
        )

    def takes(self, file: ArtifactFile) -> bool:
        """Returns whether a file is of a type that is asked for."""
        return self.artifact_types is None or file.artifact_type in self.artifact_types


@attrs.frozen(kw_only=True)
class FetchedModel:
    """A model's files, here.

    Attributes:
      directory: where they have the names of the manifest; read-only, shared with others.
      manifest: all that was published, fetched or not.
      manifest_sha256: names exactly which artifacts these are.
      files: those that were asked for, by their paths in the manifest.
    """

    directory: Path
    manifest: Manifest
    manifest_sha256: str
    files: Mapping[str, Path]


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
    read = run_all(
        {
            _manifest_url(source): functools.partial(
                _manifest_of, source, stores=stores, cache=cache, options=options, deadline=deadline
            )
            for source in sources
        },
        parallel=options.parallel,
        deadline=deadline,
    )
    errors = dict(read.errors)
    known = [
        (source, read.results[_manifest_url(source)])
        for source in sources
        if _manifest_url(source) in read.results
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


@attrs.frozen
class _Model:
    """A manifest and the digest of the document that it was read from."""

    manifest: Manifest
    sha256: str
    size_bytes: int


def _manifest_of(
    source: Source, *, stores: Stores, cache: Cache, options: FetchOptions, deadline: Deadline
) -> _Model:
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
    return _Model(manifest, sha256, len(text))


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
    cache.link(model.sha256, model.size_bytes, view / MANIFEST_FILE)
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


def _manifest_url(source: Source) -> str:
    return f"{source.url}/{MANIFEST_FILE}"


def _line(name: str, error: Exception) -> str:
    text = str(error)
    return f"  {text}" if name in text else f"  {name}: {text}"
