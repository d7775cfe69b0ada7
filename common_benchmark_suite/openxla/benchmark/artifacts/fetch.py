"""Fetches published models into the local cache: in parallel, resumed, verified, limited."""

import functools
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from openxla.benchmark.artifacts import manifest as manifests
from openxla.benchmark.artifacts import strict_json
from openxla.benchmark.artifacts.cache import Cache, is_unchanged
from openxla.benchmark.artifacts.download import FetchOptions, Transfer, Wanted, download
from openxla.benchmark.artifacts.lock_file import LockedModel, locked
from openxla.benchmark.artifacts.manifest import MANIFEST_FILE, Manifest
from openxla.benchmark.artifacts.parallel import run_all
from openxla.benchmark.artifacts.progress import Meter, human_bytes
from openxla.benchmark.artifacts.stores import NoSpaceError, Store, StoreError, Stores

__all__ = ["FetchError", "FetchOptions", "FetchedModel", "Source", "fetch", "lock_published"]

# A completely full disk would stop other programs.
_SPARE_BYTES = 64 << 20
_MOST_LISTED = 5


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
        lines = [f"{len(self.errors)} could not be fetched:"]
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
    found: dict[str, LockedModel] = {}
    for source in sources:
        text = cache.object_path(models[source.key].manifest_sha256).read_bytes()
        model, entry = locked(source.url, text)
        if found.setdefault(model, entry) != entry:
            error = StoreError(
                f"{entry.url} and {found[model].url} both publish {model}; lock only one"
            )
            raise FetchError({source.url: error})
    return found


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
    manifest = manifests.parse(text, where=f"{source.url}/{MANIFEST_FILE}")
    options.notify("manifest", manifest.model)
    view = cache.view(manifest.model, sha256)
    return FetchedModel(directory=view, manifest=manifest, manifest_sha256=sha256)


def _wanted(
    source: Source, model: FetchedModel, stores: Stores, options: FetchOptions
) -> dict[str, Wanted]:
    """Returns the objects to fetch, by digest, so that each content is fetched once."""
    found: dict[str, Wanted] = {}
    store: Store | None = None
    for file in filter(options.takes, model.manifest.files):
        if not is_unchanged(model.directory / file.path, file.sha256, file.size_bytes):
            store = store or stores.at(source.url)
            found[file.sha256] = Wanted(
                store=store, name=file.path, sha256=file.sha256, size_bytes=file.size_bytes
            )
    return found


def _check_space(wanted: Mapping[str, Wanted], cache: Cache, options: FetchOptions) -> None:
    missing = sum(cache.missing_bytes(sha256, item.size_bytes) for sha256, item in wanted.items())
    if options.max_bytes is not None and missing > options.max_bytes:
        raise NoSpaceError(
            f"{human_bytes(missing)} to fetch exceed the limit of "
            f"{human_bytes(options.max_bytes)}; raise it, or select fewer models or types"
        )
    if not missing:
        return
    cache.directory.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache.directory).free
    if missing + _SPARE_BYTES > free:
        raise NoSpaceError(
            f"{human_bytes(missing)} to fetch do not fit into {cache.directory}, where "
            f"{human_bytes(free)} are free; free some space, or put the artifact root elsewhere"
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
