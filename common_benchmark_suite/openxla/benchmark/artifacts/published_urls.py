"""Artifacts at the `artifacts_dir_url` of models, locked on this machine at first use.

The content of a URL may change. The manifest at the URL has a digest for each file. The first run
that reads the manifest keeps its sha256 in the cache. Later runs use the same bytes, without
network access. A lock file does the same for all machines and takes precedence.
"""

import functools
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import attrs
from filelock import FileLock

from openxla.benchmark.artifacts import lock_file, strict_json
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.fetch import FetchError, FetchOptions, lock_published
from openxla.benchmark.artifacts.lock_file import LockedModel, LockFile
from openxla.benchmark.artifacts.parallel import run_all
from openxla.benchmark.artifacts.stores import (
    Deadline,
    DeadlineError,
    NotFoundError,
    StoreError,
    Stores,
)
from openxla.benchmark.artifacts.strict_json import MalformedError
from openxla.benchmark.files import write_atomically

# Keyed by URL. It can be rebuilt from the published manifests.
_FILE = "urls.json"
_DEADLINE_S = 120.0


def written(url: str) -> str:
    """Returns the normal form of a URL or of the path of a directory."""
    bare = url.rstrip("/") or url
    return bare if urlsplit(bare).scheme else str(Path(bare).absolute())


def locked(
    urls: Mapping[str, str], *, cache: Cache, only_local: bool = False, attempts: int = 3
) -> tuple[dict[str, LockedModel], dict[str, str]]:
    """Returns the locks of published models, and the reasons for models without one.

    Args:
      urls: normalised URL (see `written`) by model.
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
    found, errors = _ask(asked, cache, FetchOptions(attempts=attempts, deadline_s=_DEADLINE_S))
    if found:
        _keep(cache, {lock.url: lock for lock in found.values()})
    return known | found, errors


def forget(cache: Cache, manifests: Collection[str]) -> None:
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
    found: dict[str, LockedModel] = {}
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
        found |= made
        for model, error in lost.items():
            errors[model] = " ".join(str(error).split())
            # After other errors, such as a missing object, the server is asked again.
            if hosts[model] and type(error) in (StoreError, DeadlineError):
                down[hosts[model]] = errors[model]
    return found, errors


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
                f"{reason}. manifest.json names the digest of each file; publish the folder that "
                "`cbs artifacts generate` makes"
            ) from error
        raise reason from error
    if name != model:
        raise MalformedError(f"the manifest names the model {name}")
    return lock


def _read(cache: Cache) -> dict[str, LockedModel]:
    try:
        return lock_file.read(cache.directory / _FILE).models
    except StoreError:
        return {}


def _keep(cache: Cache, entries: Mapping[str, LockedModel], without: Collection[str] = ()) -> None:
    path = cache.directory / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.parent / f".{_FILE}.lock"):
        kept = {url: lock for url, lock in _read(cache).items() if url not in without}
        models = dict(sorted({**kept, **entries}.items()))
        write_atomically(path, strict_json.to_bytes(LockFile(models=models)))
