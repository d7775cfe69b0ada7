"""`cbs artifacts`: exports, publishes, locks and fetches artifacts, and manages the local cache."""

import argparse
import datetime
import difflib
import json
import os
import pkgutil
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from comparative_benchmark.engine.settings import settings_of
from comparative_benchmark.errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, EXIT_WRONG, UsageError
from comparative_benchmark.maintenance.artifacts import generation, inventory, selection
from comparative_benchmark.maintenance.artifacts.kinds import UnknownKindError
from comparative_benchmark.maintenance.artifacts.outcomes import ExportSettings
from comparative_benchmark.maintenance.artifacts.screen import ExportScreen, Screen
from comparative_benchmark.terminal.streams import without_secrets
from openxla.benchmark.artifacts import manifests, published_models
from openxla.benchmark.artifacts import publish as publications
from openxla.benchmark.artifacts.cache import Cache, Usage
from openxla.benchmark.artifacts.manifests import MANIFEST_FILE, LockedModel, read_manifest
from openxla.benchmark.artifacts.publish import Action, PublishOptions, PublishReport
from openxla.benchmark.artifacts.published_models import (
    FetchedModel,
    FetchError,
    FetchOptions,
    Source,
    lock_published,
)
from openxla.benchmark.artifacts.stores import StoreError, human_bytes
from openxla.benchmark.comparative_suite import catalog, families
from openxla.benchmark.comparative_suite.catalog import Expression
from openxla.benchmark.def_types import BenchmarkCase
from openxla.benchmark.devices import HOST_CPU
from openxla.benchmark.files import temporary_folder
from openxla.benchmark.installation import LOCKS_DIR_VARIABLE, locks_dir


def run(options: argparse.Namespace) -> int:
    """Runs a subcommand; returns its exit code.

    Raises:
      UsageError: a store or a file failed, or an option is invalid; the message gives the remedy.
    """
    handler: Callable[[argparse.Namespace], int] = pkgutil.resolve_name(options.subcommand)
    try:
        return handler(options)
    except StoreError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise UsageError(f"{name}{error.strerror or error}") from error


_DATE_VARIABLE = "SOURCE_DATE_EPOCH"


def generate(options: argparse.Namespace) -> int:
    """Generates the selected artifacts; returns the exit code.

    Returns:
      0 if nothing failed, apart from unsupported exports; 2 if a file produced a wrong output, 1 if
      an exporter failed (in both cases, the manifest has the reason instead of the file); 3 if no
      model is selected.

    Raises:
      UsageError: an option is invalid.
    """
    screen = ExportScreen(verbose=options.verbose)
    every = catalog.all_benchmarks(options.suite)
    of = selection.framework(options.framework) if options.framework else None
    try:
        cases = selection.cases(every, name=options.name, of=of)
    except re.error as error:
        raise UsageError(f"-name {options.name!r} is not a regular expression: {error}") from error
    root = options.output.absolute()
    if not cases:
        screen.say(_no_match(options, every))
        return EXIT_MISSING
    meant, cases = cases, _left(cases, root, resume=options.resume)
    types = [item.strip() for item in (options.types or "").split(",") if item.strip()]
    with screen.following(), temporary_folder("generate") as spare:
        logs = root / "logs" if options.verbose else Path(spare)
        run_settings = settings_of(
            HOST_CPU,
            timeout_s=options.timeout,
            memory_bytes=options.memory_limit,
            threads=options.threads,
            processes=options.jobs,
            log_dir=logs,
            # New artifacts must not be created from published ones.
            use_locks=False,
        )
        settings = ExportSettings(run=run_settings, date=_date)
        subjects, failures = selection.subjects(cases, settings.run, screen.preparing)
        for model, ended in failures.items():
            screen.say(f"{model}: preparation failed in {ended.phase}: {ended.reason}", "red")
        try:
            plans = [generation.plan(subject, types) for subject in subjects]
        except UnknownKindError as error:
            raise UsageError(f"--types: {error}") from error
        work = generation.Generation(root, settings, screen, jobs=options.jobs)
        outcomes = work.run(plans)
    if options.record_types:
        there = [case.model for case in meant if (root / case.model.name).is_dir()]
        proved = {
            model.name: selection.entry(model, read_manifest(root / model.name)) for model in there
        }
        selection.update(families.PROVED_FILE, proved)
    screen.show(root, [subject.name for subject in subjects], outcomes)
    return exit_code([outcome.ending.value for outcome in outcomes], failed=bool(failures))


def exit_code(endings: Sequence[str], *, failed: bool) -> int:
    """Returns the exit code for the endings of exports; see `generate`."""
    if "wrong_output" in endings:
        return EXIT_WRONG
    return EXIT_FAILED if failed or "failed" in endings else EXIT_OK


def _left(cases: Sequence[BenchmarkCase], root: Path, *, resume: bool) -> list[BenchmarkCase]:
    """Returns the cases whose model has no directory yet.

    Raises:
      UsageError: a directory exists, and `resume` is not set.
    """
    there = [case.model.name for case in cases if (root / case.model.name).exists()]
    if there and not resume:
        raise UsageError(
            f"{root / there[0]} already exists; remove it, choose another directory with -o, or "
            "skip existing models with --resume"
        )
    return [case for case in cases if case.model.name not in there]


def _date() -> str:
    """Returns the date for manifests: now, or as given by the variable for reproducible builds."""
    given = os.environ.get(_DATE_VARIABLE)
    try:
        now = (
            datetime.datetime.now(datetime.UTC)
            if given is None
            else datetime.datetime.fromtimestamp(int(given), datetime.UTC)
        )
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"{_DATE_VARIABLE}={given!r} is invalid; expected seconds since 1970-01-01"
        ) from error
    return now.isoformat(timespec="seconds")


def _no_match(options: argparse.Namespace, every: Sequence[BenchmarkCase]) -> str:
    name = options.name
    if options.framework and selection.cases(every, name=name, of=None):
        return f"no selected model has an implementation in {options.framework}"
    names = list(dict.fromkeys(case.model.name for case in every))
    letters = re.sub(r"[^A-Za-z0-9_-]", "", name or "")
    nearest = difflib.get_close_matches(letters, names, n=3, cutoff=0.3)
    lines = [f"no model name matches {name!r} (the expression must match the whole name)"]
    if nearest:
        lines += ["similar names:", *(f"  {item}" for item in nearest)]
    return "\n".join([*lines, "to list all models, run `cbs list`"])


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
    moved = options.auto_upload and not options.dry_run and not failed
    if moved and options.directory.is_dir() and not any(options.directory.iterdir()):
        options.directory.rmdir()
    if locks and not options.dry_run:
        if options.lock:
            _write(options.lock, locks, screen)
        else:
            urls = " ".join(lock.url for lock in locks.values())
            screen.say(f"to use them, run: cbs artifacts lock {urls} -o artifacts/locks/NAME.json")
    return EXIT_FAILED if failed else EXIT_OK


def lock(options: argparse.Namespace) -> int:
    """Locks the models currently published under some URLs; returns 0.

    Raises:
      UsageError: another lock file in the directory already has one of the models.
      StoreError: a manifest is unavailable, or the lock file is damaged.
    """
    screen = Screen()
    limits = FetchOptions(deadline_s=options.deadline, anonymous=options.anonymous)
    locked = lock_published([absolute(url) for url in options.urls], options=limits)
    _write(options.output, locked, screen)
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
    folders = sorted(path.parent for path in directory.glob(f"*/{MANIFEST_FILE}"))
    if not folders:
        raise UsageError(
            f"no {MANIFEST_FILE} in {directory} or its subdirectories; create artifacts with "
            "`cbs artifacts generate -o DIRECTORY`"
        )
    return {path: f"{url}/{path.name}" for path in folders}


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
        screen.say(f"  not published: {name} is not in the manifest", "yellow")


def _write(path: Path, entries: Mapping[str, LockedModel], screen: Screen) -> None:
    """Locks models in a file, unless another file in its directory locks them differently."""
    _check_beside(path, entries)
    before = manifests.read_lock_file(path).models if path.exists() else {}
    manifests.update_lock_file(path, entries)
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
        screen.say(f"runs ignore {path}: move it to {used}, or set ${LOCKS_DIR_VARIABLE}")
    if local := sorted(model for model in entries if not urlsplit(entries[model].url).scheme):
        screen.say(
            f"{', '.join(local)}: locked at a local path, which other machines cannot access",
            "yellow",
        )


def _check_beside(path: Path, entries: Mapping[str, LockedModel]) -> None:
    for other in sorted(path.parent.glob("*.json")):
        if other.name == path.name:
            continue
        models = manifests.read_lock_file(other).models
        for model in sorted(entries):
            if models.get(model, entries[model]) != entries[model]:
                raise UsageError(
                    f"{other} already locks {model} at {models[model].url}; write to that "
                    "file instead, or remove the entry from it"
                )


def fetch(options: argparse.Namespace) -> int:
    """Fetches the selected artifacts, and prints where each model is.

    Returns:
      0; 1 if something could not be fetched (the rest is in the cache); 3 if no locked model is
      selected.

    Raises:
      UsageError: the expression is malformed.
      StoreError: the artifacts exceed the size limit, or a lock file is damaged.
    """
    screen = Screen()
    sources = [Source(url=absolute(url)) for url in options.url]
    if options.name is not None or not sources:
        locked = _locked(options.name)
        if not locked and not sources:
            screen.say(_nothing(options.name))
            return EXIT_MISSING
        sources += locked
    types = [name.strip() for name in (options.types or "").split(",") if name.strip()]
    wanted = FetchOptions(
        artifact_types=frozenset(types) if types else None,
        deadline_s=options.deadline,
        max_bytes=options.max_size,
        anonymous=options.anonymous,
        on_progress=screen.progress,
    )
    try:
        fetched, failure = published_models.fetch(sources, options=wanted), None
    except FetchError as error:
        fetched, failure = error.fetched, error
    finally:
        screen.close()
    for model in fetched:
        _show_fetched(model, types, screen)
    if failure is not None:
        screen.say(f"cbs: {without_secrets(str(failure))}", "red")
        return EXIT_FAILED
    return EXIT_OK


def _locked(name: str | None) -> list[Source]:
    """Returns the locked models that match a name, sorted by name."""
    try:
        pattern = Expression(name) if name is not None else None
        return [
            Source.locked(entry)
            for model, entry in sorted(manifests.read_lock_files().items())
            if pattern is None
            or pattern.fullmatch(model)
            or pattern.fullmatch(f"models/{model}/inputs/INPUT_DATA_MODEL_DEFAULT")
        ]
    except re.error as error:
        raise UsageError(f"-name {name!r} is not a regular expression: {error}") from error


def _nothing(name: str | None) -> str:
    directory, locked = locks_dir(), sorted(manifests.read_lock_files())
    if not locked:
        return (
            f"{directory} contains no locks; create one with `cbs artifacts lock URL... -o FILE`, "
            "or run `cbs artifacts fetch --url URL`, which does not require a lock"
        )
    return (
        f"no locked model matches {name!r} (the expression must match the whole name); "
        f"models locked in {directory}: {', '.join(locked[:5])}{' ...' if len(locked) > 5 else ''}"
    )


def _show_fetched(model: FetchedModel, types: list[str], screen: Screen) -> None:
    sizes = {f.path: f.size_bytes for f in model.manifest.files}
    size = sum(sizes[path] for path in model.files)
    screen.print(
        f"{model.manifest.model}  files: {len(model.files)}, {human_bytes(size)}  {model.directory}"
    )
    there = {file.artifact_type for file in model.manifest.files}
    for kind in sorted(set(types) - there):
        reasons = [f.reason for f in model.manifest.failures if f.artifact_type == kind]
        why = f": {reasons[0]}" if reasons else ""
        screen.say(f"  {model.manifest.model} has no {kind}{why}", "yellow")


def ls(options: argparse.Namespace) -> int:
    """Prints the contents of the cache; returns 0."""
    cache, screen = Cache(), Screen()
    models, usage = inventory.models(cache), cache.usage()
    free = _disk_free(cache)
    if options.json:
        document = {
            "directory": str(cache.directory),
            "models": [model.as_json() for model in models],
            "usage": {
                name: {"files": part.files, "size_bytes": part.size_bytes}
                for name, part in usage.items()
            },
            "disk_free_bytes": free,
        }
        print(json.dumps(document, indent=2))
        return EXIT_OK
    width = max((len(model.model) for model in models), default=0)
    for model in models:
        total = len(model.manifest.files) if model.manifest else 0
        state = "locked" if model.url else "not locked"
        if model.manifest is None:
            state += ", damaged"
        users = f"  used by {', '.join(model.workloads)}" if model.workloads else ""
        screen.print(
            f"{model.model:<{width}}  {human_bytes(model.size_bytes):>10}  "
            f"{len(model.present)}/{total} files  {model.manifest_sha256[:16]}  {state}{users}"
        )
    whole = sum(part.size_bytes for part in usage.values())
    screen.print(
        f"{cache.directory}: {human_bytes(whole)} (objects: {usage['objects'].files}, "
        f"unfinished: {_said(usage['partial'])}, unpacked: {_said(usage['unpacked'])}); "
        f"{human_bytes(free)} free on the disk"
    )
    return EXIT_OK


def verify(options: argparse.Namespace) -> int:
    """Recomputes the digests of the cache, and of workloads and checkpoints in the root directory.

    Damaged objects are removed from the cache, so that the next fetch restores them. Other damaged
    files are kept for inspection, because no command uses them.

    Returns:
      0, or 2 if something was damaged.
    """
    cache, screen = Cache(), Screen()
    models = inventory.models(cache)
    objects = cache.usage()["objects"]
    removed = {sha256: inventory.holders(models, sha256) for sha256 in cache.verify()}
    checked, damaged = inventory.damaged_files()
    if options.json:
        document = {
            "objects": objects.files,
            "removed": removed,
            "files": checked,
            "damaged": [str(path) for path in damaged],
        }
        print(json.dumps(document, indent=2))
    else:
        for sha256, names in removed.items():
            screen.print(f"damaged, removed  {sha256}  {', '.join(names) or 'unused'}")
        for path in damaged:
            screen.print(f"damaged  {path}")
        screen.print(
            f"checked {objects.files} objects ({human_bytes(objects.size_bytes)}) and {checked} "
            f"workload and checkpoint files: {len(removed) + len(damaged)} damaged"
        )
    if removed:
        screen.say("run `cbs artifacts fetch` to fetch locked artifacts again")
    if damaged:
        screen.say(
            "the next run fetches damaged workloads again if they are locked; regenerate "
            "the others with --generate-artifacts. If a checkpoint is damaged, remove its folder"
        )
    return EXIT_WRONG if removed or damaged else EXIT_OK


def gc(options: argparse.Namespace) -> int:
    """Removes unreferenced objects and unfinished downloads; returns 0."""
    cache, screen = Cache(), Screen()
    dropped = []
    if options.unlocked:
        locked = [lock.manifest_sha256 for lock in manifests.read_lock_files().values()]
        views = set(cache.views_besides(locked))
        dropped = [model for model in inventory.models(cache) if model.view in views]
    would = "would be " if options.dry_run else ""
    for model in dropped:
        screen.print(f"{would}removed  {model.model}  {model.manifest_sha256[:16]} (not locked)")
    if options.dry_run:
        freed = [cache.collectable(), _freed_by(cache, dropped)]
    else:
        for model in dropped:
            shutil.rmtree(model.view)
        digests = {sha256 for model in dropped for sha256 in model.digests - {""}}
        freed = [cache.discard(digests), cache.collect()]
    total = Usage(
        files=sum(part.files for part in freed), size_bytes=sum(part.size_bytes for part in freed)
    )
    screen.print(f"objects: {total.files}, {human_bytes(total.size_bytes)} {would}freed")
    return EXIT_OK


def rm(options: argparse.Namespace) -> int:
    """Removes models and the objects that only they use; returns 0.

    Raises:
      UsageError: a model is not in the cache.
    """
    cache, screen = Cache(), Screen()
    models = inventory.models(cache)
    known = sorted({model.model for model in models})
    if unknown := [name for name in options.models if name not in known]:
        choices = ", ".join(known[:5]) + (" ..." if len(known) > 5 else "") or "nothing"
        raise UsageError(
            f"{cache.directory} contains no artifacts for {unknown[0]!r}; it contains {choices}"
        )
    for name in dict.fromkeys(options.models):
        digests = {sha for model in models if model.model == name for sha in model.digests - {""}}
        cache.remove_model(name)
        published_models.forget_urls(cache, {m.manifest_sha256 for m in models if m.model == name})
        freed = cache.discard(digests)
        screen.print(f"removed  {name}  {_said(freed)} freed")
        kept = len([sha256 for sha256 in digests if cache.object_path(sha256).exists()])
        if kept:
            screen.say(f"  objects kept for other models, workloads or checkpoints: {kept}")
    return EXIT_OK


def _freed_by(cache: Cache, dropped: list[inventory.CachedModel]) -> Usage:
    """Returns the space freed by removing some views: objects linked only from them."""
    names: dict[str, int] = {}
    for model in dropped:
        files = model.manifest.files if model.manifest else ()
        digests = [file.sha256 for file in files if file.path in model.present]
        for sha256 in (*digests, model.manifest_sha256):
            names[sha256] = names.get(sha256, 0) + 1
    sizes = []
    for sha256, count in names.items():
        path = cache.object_path(sha256)
        if sha256 and path.exists() and path.stat().st_nlink == 1 + count:
            sizes.append(path.stat().st_size)
    return Usage(files=len(sizes), size_bytes=sum(sizes))


def _disk_free(cache: Cache) -> int:
    place = cache.directory
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def _said(usage: Usage) -> str:
    return human_bytes(usage.size_bytes)
