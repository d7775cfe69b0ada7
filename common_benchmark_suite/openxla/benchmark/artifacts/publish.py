"""A directory of artifacts into a store: written once, checked there, the manifest last."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from openxla.benchmark.artifacts import manifest as manifests
from openxla.benchmark.artifacts.lock_file import locked
from openxla.benchmark.artifacts.manifest import CLAIM_FILE, MANIFEST_FILE
from openxla.benchmark.artifacts.parallel import run_all
from openxla.benchmark.artifacts.progress import Meter
from openxla.benchmark.artifacts.stores import (
    Deadline,
    LocalFile,
    StoreOptions,
    Stores,
)
from openxla.benchmark.artifacts.upload import (
    Action,
    ConflictError,
    PublishedFile,
    PublishError,
    PublishOptions,
    PublishReport,
    Upload,
    digested,
)

__all__ = [
    "Action",
    "ConflictError",
    "PublishError",
    "PublishOptions",
    "PublishReport",
    "PublishedFile",
    "publish",
]

T = TypeVar("T")


def publish(directory: Path, url: str, options: PublishOptions | None = None) -> PublishReport:
    """Publishes the artifacts of a directory with a manifest under a URL.

    First a claim is written, which says whose manifest it will be: of two that publish different
    things under one URL, one stops there. Then the files go up in parallel; then the store
    confirms their digests; then the manifest makes them visible. What is already there with the
    same content is left as it is, so that a publication that was cut short is finished by the
    same command.

    Raises:
      MalformedError: the manifest can not be read.
      ConflictError: something else is there.
      PublishError: a file is not as the manifest says, or can not be written.
    """
    options = options or PublishOptions()
    deadline = Deadline(options.deadline_s)
    manifest = manifests.read(directory)
    sizes = {file.path: file.size_bytes for file in manifest.files}
    stores = Stores(
        StoreOptions(
            deadline=deadline,
            connect_timeout_s=options.connect_timeout_s,
            read_timeout_s=options.read_timeout_s,
            anonymous=options.anonymous,
        )
    )
    store = stores.at(url)
    local = _run(
        {file.path: functools.partial(_checked, directory, file) for file in manifest.files},
        options,
        deadline,
    )
    document = digested(directory / MANIFEST_FILE)
    model, lock = locked(store.url, (directory / MANIFEST_FILE).read_bytes())
    if document.sha256 != lock.manifest_sha256:
        raise PublishError(f"{directory / MANIFEST_FILE} changed while it was being read")
    meter = Meter(
        total_bytes=sum(sizes.values()) + document.size_bytes,
        total_files=len(sizes) + 1,
        on_progress=options.on_progress,
    )
    up = Upload(store, options, meter)
    if options.dry_run:
        everything = {**local, MANIFEST_FILE: document}
        plans = {name: functools.partial(up.plan, name, file) for name, file in everything.items()}
        actions = _run(plans, options, deadline)
    else:
        _run({CLAIM_FILE: functools.partial(up.claim, document)}, options, deadline)
        puts = {name: functools.partial(up.put, name, local[name]) for name in sorted(local)}
        actions = _run(puts, options, deadline)
        options.notify("files", model)
        last = {MANIFEST_FILE: functools.partial(up.put, MANIFEST_FILE, document)}
        actions |= _run(last, options, deadline)
        options.notify("manifest", model)
    strays = _strays(directory, sizes)
    if options.remove_local and not options.dry_run:
        _remove(directory, [*local.values(), document])
    all_sizes = {**sizes, MANIFEST_FILE: document.size_bytes}
    return PublishReport(
        url=store.url,
        files=tuple(
            PublishedFile(url=store.url_of(name), size_bytes=all_sizes[name], action=actions[name])
            for name in (*sorted(local), MANIFEST_FILE)
        ),
        strays=strays,
        model=model,
        lock=lock,
    )


def _run(
    tasks: Mapping[str, Callable[[], T]], options: PublishOptions, deadline: Deadline
) -> dict[str, T]:
    outcomes = run_all(tasks, parallel=options.parallel, deadline=deadline)
    for error in outcomes.errors.values():
        if isinstance(error, ConflictError):
            raise error
    if outcomes.errors:
        name, error = next(iter(outcomes.errors.items()))
        more = f" (and {len(outcomes.errors) - 1} more)" if len(outcomes.errors) > 1 else ""
        # The answer to the last request may be all that got lost.
        state = "it may be visible" if name == MANIFEST_FILE else "nothing is visible yet"
        raise PublishError(f"{name}: {error}{more}; {state}: run the same again") from error
    return outcomes.results


def _checked(directory: Path, file: manifests.ArtifactFile) -> LocalFile:
    path = directory / file.path
    if not path.is_file() or path.is_symlink():
        raise PublishError(f"{path}, which the manifest names, is no file")
    found = digested(path)
    if (found.size_bytes, found.sha256) != (file.size_bytes, file.sha256):
        raise PublishError(f"{path} is not the file that the manifest describes; generate it again")
    return found


def _strays(directory: Path, named: Mapping[str, object]) -> tuple[str, ...]:
    found = (path for path in directory.rglob("*") if not path.is_dir())
    names = sorted(path.relative_to(directory).as_posix() for path in found)
    return tuple(name for name in names if name not in named and name != MANIFEST_FILE)


def _remove(directory: Path, files: list[LocalFile]) -> None:
    """Removes published files, and directories that are empty then."""
    for file in files:
        file.path.unlink()
    below = [path for path in directory.rglob("*") if path.is_dir()]
    for path in (*sorted(below, reverse=True), directory):
        if not any(path.iterdir()):
            path.rmdir()
