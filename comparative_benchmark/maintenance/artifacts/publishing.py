"""`cbs artifacts publish` and `lock`: publish directories to stores, and lock published models."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from comparative_benchmark.maintenance.artifacts.screen import Screen
from comparative_benchmark.terminal.options import EXIT_FAILED, EXIT_OK, UsageError
from openxla.benchmark.artifacts import lock_file
from openxla.benchmark.artifacts import publish as publications
from openxla.benchmark.artifacts.fetch import FetchOptions, lock_published
from openxla.benchmark.artifacts.lock_file import LockedModel
from openxla.benchmark.artifacts.manifest import MANIFEST_FILE
from openxla.benchmark.artifacts.progress import human_bytes
from openxla.benchmark.artifacts.publish import Action, PublishOptions, PublishReport
from openxla.benchmark.artifacts.stores import StoreError
from openxla.benchmark.root import LOCKS_DIR_VARIABLE, locks_dir


def publish(options: argparse.Namespace) -> int:
    """Publishes a model, or each model in a directory; continues after a failure.

    Returns:
      0, or 1 if a model could not be published.

    Raises:
      UsageError: there is nothing to publish, or another lock file already has one of the models.
    """
    sources = _sources(options.directory, absolute(options.url))
    screen, failed = Screen(), False
    locks: dict[str, LockedModel] = {}
    for directory, url in sources.items():
        try:
            report = publications.publish(directory, url, _options(options, screen))
        except StoreError as error:
            screen.say(f"{directory.name}: {error}", "red")
            failed = True
            continue
        finally:
            screen.close()
        _show(report, screen, dry_run=options.dry_run)
        locks[report.model] = report.lock
    if options.auto_upload and not options.dry_run and not failed:
        _remove_if_empty(options.directory)
    if locks and not options.dry_run:
        if options.lock:
            _write(options.lock, locks, screen)
        else:
            urls = " ".join(lock.url for lock in locks.values())
            screen.say(f"to use them: cbs artifacts lock {urls} -o artifacts/locks/NAME.json")
    return EXIT_FAILED if failed else EXIT_OK


def lock(options: argparse.Namespace) -> int:
    """Locks the models currently published under some URLs; returns 0.

    Raises:
      UsageError: another lock file in the directory already has one of the models.
      StoreError: a manifest is unavailable, or the lock file is damaged.
    """
    screen = Screen()
    fetching = FetchOptions(deadline_s=options.deadline, anonymous=options.anonymous)
    found = lock_published([absolute(url) for url in options.urls], options=fetching)
    _write(options.output, found, screen)
    return EXIT_OK


def absolute(url: str) -> str:
    """Returns a URL that is valid in any directory: paths become absolute."""
    return url.rstrip("/") if urlsplit(url).scheme else Path(url).absolute().as_posix()


def _sources(directory: Path, url: str) -> dict[Path, str]:
    """Returns the directories of models, and the URL for each."""
    if (directory / MANIFEST_FILE).is_file():
        return {directory: url}
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory")
    found = sorted(path.parent for path in directory.glob(f"*/{MANIFEST_FILE}"))
    if not found:
        raise UsageError(
            f"no {MANIFEST_FILE} in {directory} or its subdirectories; create artifacts with "
            "`cbs artifacts generate -o DIRECTORY`"
        )
    return {path: f"{url}/{path.name}" for path in found}


def _options(options: argparse.Namespace, screen: Screen) -> PublishOptions:
    return PublishOptions(
        dry_run=options.dry_run,
        remove_local=options.auto_upload,
        deadline_s=options.deadline,
        anonymous=options.anonymous,
        on_progress=screen.progress,
    )


def _show(report: PublishReport, screen: Screen, *, dry_run: bool) -> None:
    parts = []
    for action in Action:
        sizes = [file.size_bytes for file in report.files if file.action is action]
        if sizes:
            what = "already present" if action is Action.PRESENT else action.value
            parts.append(f"{len(sizes)} {what} ({human_bytes(sum(sizes))})")
    screen.print(f"{report.url}  {', '.join(parts)}")
    if dry_run:
        for file in report.files:
            screen.say(f"  {file.action.value:<12}  {human_bytes(file.size_bytes):>10}  {file.url}")
    for name in report.strays:
        screen.say(f"  {name} is not in the manifest; it was not published", "yellow")


def _remove_if_empty(directory: Path) -> None:
    """Removes a directory of models if it is empty."""
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()


def _write(path: Path, entries: Mapping[str, LockedModel], screen: Screen) -> None:
    """Locks models in a file, unless another file in its directory locks them differently."""
    _check_beside(path, entries)
    before = lock_file.read(path).models if path.exists() else {}
    lock_file.update(path, entries)
    for model, entry in sorted(entries.items()):
        state = "locked"
        if model in before:
            state = "unchanged" if before[model] == entry else "lock updated"
        screen.print(
            f"{state}  {model}  {human_bytes(entry.size_bytes)}  {entry.manifest_sha256[:16]}  "
            f"{entry.url}"
        )
    used = locks_dir()
    if path.absolute().parent != used:
        screen.say(f"runs read only the lock files in {used} (${LOCKS_DIR_VARIABLE})")
    if local := sorted(model for model in entries if not urlsplit(entries[model].url).scheme):
        screen.say(
            f"{', '.join(local)}: locked to a local path, which other machines cannot fetch from",
            "yellow",
        )


def _check_beside(path: Path, entries: Mapping[str, LockedModel]) -> None:
    for other in _others(path):
        models = lock_file.read(other).models
        for model in sorted(entries):
            if models.get(model, entries[model]) != entries[model]:
                raise UsageError(
                    f"{other} already locks {model} at {models[model].url}; write to that file, "
                    "or remove its entry"
                )


def _others(path: Path) -> Sequence[Path]:
    return [item for item in sorted(path.parent.glob("*.json")) if item.name != path.name]
