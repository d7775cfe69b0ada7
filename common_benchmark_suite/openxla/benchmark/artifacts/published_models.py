"""Fetches published models into the local cache: in parallel, resumed, verified, limited.

A lock file fixes the manifest of a model. An `artifacts_dir_url` without a lock file is locked on
this machine at first use, because the content of a URL may change. The manifest at the URL has a
digest for each file. The first run that reads the manifest at the URL keeps its sha256 in the
cache, and later runs use the same bytes, without network access. A lock file takes precedence.
"""

import functools
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import attrs
from filelock import FileLock

from openxla.benchmark.artifacts import manifests, strict_json
from openxla.benchmark.artifacts.cache import Cache, is_unchanged
from openxla.benchmark.artifacts.manifests import (
    MANIFEST_FILE,
    LockedModel,
    LockFile,
    Manifest,
    locked_model,
)
from openxla.benchmark.artifacts.stores import (
    Deadline,
    DeadlineError,
    Meter,
    NoSpaceError,
    NotFoundError,
    Store,
    StoreError,
    Stores,
    UnreachableError,
    human_bytes,
)
from openxla.benchmark.artifacts.strict_json import MalformedError
from openxla.benchmark.artifacts.transfers import FetchOptions, Transfer, Wanted, download, run_all
from openxla.benchmark.files import write_atomically

__all__ = ["FetchError", "FetchOptions", "FetchedModel", "Source", "fetch", "lock_published"]

# A completely full disk would stop other programs.
_SPARE_BYTES = 64 << 20
_MOST_LISTED = 5

# Keyed by URL. It can be rebuilt from the published manifests.
_FILE = "urls.json"
_DEADLINE_S = 120.0


@attrs.frozen(kw_only=True)
class Source:
    """The location of a model's artifacts.

    Attributes:
      url: URL of the directory with the manifest.
      lock: expected content; None accepts the current content.
    """

    url: str
    lock: LockedModel | None = None

    @classmethod
    def locked(cls, lock: LockedModel) -> "Source":
        """Returns the source that a lock file names."""
        return cls(url=lock.url, lock=lock)

    @property
    def key(self) -> str:
        """A key for the manifest; one URL may have been locked at different times."""
        url = f"{self.url}/{MANIFEST_FILE}"
        return url if self.lock is None else f"{url} (sha256 {self.lock.manifest_sha256[:16]})"


@attrs.frozen(kw_only=True)
class FetchedModel:
    """A model's files in the local cache.

    Attributes:
      directory: directory with the file names of the manifest; read-only and shared.
      manifest: all published files, fetched or not.
      manifest_sha256: digest that identifies the artifacts.
      files: the requested files, by path in the manifest.
    """

    directory: Path
    manifest: Manifest
    manifest_sha256: str
    files: Mapping[str, Path] = attrs.Factory(dict)


class FetchError(StoreError):
    """Some artifacts could not be fetched; the others are in the cache.

    Attributes:
      errors: errors by URL of the object.
      fetched: the models that are complete.
    """

    def __init__(
        self, errors: Mapping[str, Exception], fetched: Sequence[FetchedModel] = ()
    ) -> None:
        self.errors, self.fetched = dict(errors), list(fetched)
        lines = [f"could not fetch {len(self.errors)} artifact{'s' * (len(self.errors) > 1)}:"]
        for name, error in list(self.errors.items())[:_MOST_LISTED]:
            # The message of a StoreError names its object.
            is_named = isinstance(error, StoreError)
            lines.append(f"  {error}" if is_named else f"  {name}: {error}")
        if len(self.errors) > _MOST_LISTED:
            lines.append(f"and {len(self.errors) - _MOST_LISTED} more")
        super().__init__("\n".join(lines))


def fetch(
    sources: Sequence[Source], *, cache: Cache | None = None, options: FetchOptions | None = None
) -> list[FetchedModel]:
    """Returns models with their files in the cache, in the order of the sources.

    Files that are present and unchanged since their digest was computed need no network;
    `Cache.verify` recomputes digests. Files shared by several models are fetched once.

    Raises:
      FetchError: a file cannot be fetched, or does not match the lock.
      NoSpaceError: the files exceed the disk or `max_bytes`; nothing was transferred.
    """
    cache, options = cache or Cache(), options or FetchOptions()
    stores = Stores(options)
    models, errors = _manifests(sources, stores, cache, options)
    wanted: dict[str, Wanted] = {}
    for source in sources:
        if source.key in models:
            wanted |= _wanted(source, models[source.key], stores, options)
    _check_space(wanted, cache, options)
    meter = Meter(
        total_bytes=sum(item.size_bytes for item in wanted.values()),
        total_files=len(wanted),
        on_progress=options.on_progress,
    )
    transfer = Transfer(options, stores.deadline, meter)
    _, lost = run_all(
        {item.url: functools.partial(download, item, cache, transfer) for item in wanted.values()},
        parallel=options.parallel,
        deadline=stores.deadline,
    )
    missing = {sha256 for sha256, item in wanted.items() if item.url in lost}
    fetched = [
        _named(models[source.key], cache, options)
        for source in sources
        if source.key in models
        and missing.isdisjoint(
            file.sha256 for file in filter(options.takes, models[source.key].manifest.files)
        )
    ]
    if errors or lost:
        raise FetchError({**errors, **lost}, fetched)
    return fetched


def lock_published(
    urls: Iterable[str], *, cache: Cache | None = None, options: FetchOptions | None = None
) -> dict[str, LockedModel]:
    """Returns lock file entries of currently published models, by name.

    Raises:
      FetchError: a manifest cannot be fetched, or two URLs have the same model.
    """
    cache, options = cache or Cache(), options or FetchOptions()
    sources = [Source(url=url.rstrip("/")) for url in urls]
    models, errors = _manifests(sources, Stores(options), cache, options)
    if errors:
        raise FetchError(errors)
    locks: dict[str, LockedModel] = {}
    for source in sources:
        text = cache.object_path(models[source.key].manifest_sha256).read_bytes()
        model, entry = locked_model(source.url, text)
        if locks.setdefault(model, entry) != entry:
            error = StoreError(
                f"{entry.url} and {locks[model].url} both publish {model}; lock only one"
            )
            raise FetchError({source.url: error})
    return locks


def _manifests(
    sources: Sequence[Source], stores: Stores, cache: Cache, options: FetchOptions
) -> tuple[dict[str, FetchedModel], dict[str, Exception]]:
    """Returns models without files, by the keys of their sources; and errors."""
    tasks = {
        source.key: functools.partial(_manifest_of, source, stores, cache, options)
        for source in sources
    }
    return run_all(tasks, parallel=options.parallel, deadline=stores.deadline)


def _manifest_of(
    source: Source, stores: Stores, cache: Cache, options: FetchOptions
) -> FetchedModel:
    lock = source.lock
    if lock is not None and cache.holds(lock.manifest_sha256, lock.manifest_size_bytes):
        sha256 = lock.manifest_sha256
    else:
        wanted = Wanted(
            store=stores.at(source.url),
            name=MANIFEST_FILE,
            sha256=lock.manifest_sha256 if lock else None,
            size_bytes=lock.manifest_size_bytes if lock else strict_json.MOST_BYTES,
        )
        meter = Meter(total_bytes=0, total_files=1)
        sha256 = download(wanted, cache, Transfer(options, stores.deadline, meter))
    text = cache.object_path(sha256).read_bytes()
    manifest = manifests.parse_manifest(text, where=f"{source.url}/{MANIFEST_FILE}")
    options.notify("manifest", manifest.model)
    view = cache.view(manifest.model, sha256)
    return FetchedModel(directory=view, manifest=manifest, manifest_sha256=sha256)


def _wanted(
    source: Source, model: FetchedModel, stores: Stores, options: FetchOptions
) -> dict[str, Wanted]:
    """Returns the objects to fetch, by digest, so that each content is fetched once."""
    wanted: dict[str, Wanted] = {}
    store: Store | None = None
    for file in filter(options.takes, model.manifest.files):
        if not is_unchanged(model.directory / file.path, file.sha256, file.size_bytes):
            store = store or stores.at(source.url)
            wanted[file.sha256] = Wanted(
                store=store, name=file.path, sha256=file.sha256, size_bytes=file.size_bytes
            )
    return wanted


def _check_space(wanted: Mapping[str, Wanted], cache: Cache, options: FetchOptions) -> None:
    missing = sum(cache.missing_bytes(sha256, item.size_bytes) for sha256, item in wanted.items())
    if options.max_bytes is not None and missing > options.max_bytes:
        raise NoSpaceError(
            f"the download of {human_bytes(missing)} exceeds the limit of "
            f"{human_bytes(options.max_bytes)}; raise --max-size, or select fewer models or types"
        )
    if not missing:
        return
    cache.directory.mkdir(parents=True, exist_ok=True)
    free, total = shutil.disk_usage(cache.directory).free, missing + _SPARE_BYTES
    if total > free:
        raise NoSpaceError(
            f"not enough space in {cache.directory} for the download: {human_bytes(total)} needed, "
            f"{human_bytes(free)} available; free some space, or choose another artifact root"
        )


def _named(model: FetchedModel, cache: Cache, options: FetchOptions) -> FetchedModel:
    """Links the fetched files under their names."""
    manifest_path = cache.object_path(model.manifest_sha256)
    size_bytes = manifest_path.stat().st_size
    cache.link(model.manifest_sha256, size_bytes, model.directory / MANIFEST_FILE)
    files = {}
    for file in filter(options.takes, model.manifest.files):
        files[file.path] = model.directory / file.path
        try:
            cache.link(file.sha256, file.size_bytes, files[file.path])
        except OSError as error:
            raise StoreError(f"{files[file.path]} cannot be created ({error}); retry") from error
        options.notify("linked", file.path)
    return attrs.evolve(model, files=files)


def url_as_written(url: str) -> str:
    """Returns the normal form of a URL or of the path of a directory."""
    bare = url.rstrip("/") or url
    return bare if urlsplit(bare).scheme else str(Path(bare).absolute())


def locked_urls(
    urls: Mapping[str, str], *, cache: Cache, only_local: bool = False, attempts: int = 3
) -> tuple[dict[str, LockedModel], dict[str, str]]:
    """Returns the locks of published models, and the reasons for models without one.

    Args:
      urls: normalised URL (see `url_as_written`) by model.
      cache: cache with the known URLs.
      only_local: transfer nothing; unknown URLs are in neither result.
      attempts: attempts per manifest.
    """
    if not urls:
        return {}, {}
    before = _read(cache)
    known = {model: before[url] for model, url in urls.items() if url in before}
    asked = {model: url for model, url in urls.items() if url not in before}
    if only_local or not asked:
        return known, {}
    locks, errors = _ask(asked, cache, FetchOptions(attempts=attempts, deadline_s=_DEADLINE_S))
    if locks:
        _keep(cache, {lock.url: lock for lock in locks.values()})
    return known | locks, errors


def forget_urls(cache: Cache, manifests: Collection[str]) -> None:
    """Forgets the manifests of URLs, so that the next run downloads them again.

    Args:
      cache: cache with the known URLs.
      manifests: sha256 of the manifests to forget.
    """
    gone = [url for url, lock in _read(cache).items() if lock.manifest_sha256 in manifests]
    if gone:
        _keep(cache, {}, without=gone)


def _ask(
    urls: Mapping[str, str], cache: Cache, options: FetchOptions
) -> tuple[dict[str, LockedModel], dict[str, str]]:
    deadline = Deadline(options.deadline_s)
    locks: dict[str, LockedModel] = {}
    errors: dict[str, str] = {}
    down: dict[str, str] = {}
    # An unresponsive server is asked for one model only.
    first = {urlsplit(url).netloc: model for model, url in urls.items()}
    for models in (list(first.values()), [model for model in urls if model not in first.values()]):
        hosts = {model: urlsplit(urls[model]).netloc for model in models}
        errors |= {model: down[host] for model, host in hosts.items() if host in down}
        options = attrs.evolve(options, deadline_s=deadline.remaining_s())
        made, lost = run_all(
            {
                model: functools.partial(_lock_of, model, urls[model], cache, options)
                for model in models
                if model not in errors
            },
            parallel=options.parallel,
            deadline=deadline,
        )
        locks |= made
        for model, error in lost.items():
            errors[model] = " ".join(str(error).split())
            # After other errors, such as a missing object, the server is asked again.
            if hosts[model] and isinstance(error, UnreachableError | DeadlineError):
                down[hosts[model]] = errors[model]
    return locks, errors


def _lock_of(model: str, url: str, cache: Cache, options: FetchOptions) -> LockedModel:
    if url.split() != [url]:
        raise MalformedError(f"{url!r} contains spaces")
    try:
        Stores(options).at(url)
    except StoreError as error:  # an error of this URL, not of the server
        raise MalformedError(str(error)) from error
    try:
        ((name, lock),) = lock_published([url], cache=cache, options=options).items()
    except FetchError as error:
        (reason,) = error.errors.values()
        if isinstance(reason, NotFoundError):
            raise NotFoundError(
                f"{reason}. A published folder needs a manifest.json with the digest of each file; "
                "create the folder with `cbs artifacts generate`"
            ) from error
        raise reason from error
    if name != model:
        raise MalformedError(f"the manifest is for the model {name}, not {model}")
    return lock


def _read(cache: Cache) -> dict[str, LockedModel]:
    try:
        return manifests.read_lock_file(cache.directory / _FILE).models
    except StoreError:
        return {}


def _keep(cache: Cache, entries: Mapping[str, LockedModel], without: Collection[str] = ()) -> None:
    path = cache.directory / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.parent / f".{_FILE}.lock"):
        others = {url: lock for url, lock in _read(cache).items() if url not in without}
        models = dict(sorted({**others, **entries}.items()))
        write_atomically(path, strict_json.to_bytes(LockFile(models=models)))
