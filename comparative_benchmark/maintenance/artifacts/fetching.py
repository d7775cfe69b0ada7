"""`cbs artifacts fetch`: fetches locked or given artifacts into the local cache."""

import argparse
import re

from comparative_benchmark.maintenance.artifacts.publishing import absolute
from comparative_benchmark.maintenance.artifacts.screen import Screen
from comparative_benchmark.terminal.options import EXIT_FAILED, EXIT_MISSING, EXIT_OK, UsageError
from comparative_benchmark.terminal.streams import without_secrets
from openxla.benchmark.artifacts import fetch as fetching
from openxla.benchmark.artifacts import lock_file
from openxla.benchmark.artifacts.fetch import FetchedModel, FetchError, FetchOptions, Source
from openxla.benchmark.artifacts.progress import human_bytes
from openxla.benchmark.comparative_suite.expressions import Expression
from openxla.benchmark.root import locks_dir


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
        found, failure = fetching.fetch(sources, options=wanted), None
    except FetchError as error:
        found, failure = error.fetched, error
    finally:
        screen.close()
    for model in found:
        _show(model, types, screen)
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
            for model, entry in sorted(lock_file.read_all().items())
            if pattern is None
            or pattern.fullmatch(model)
            or pattern.fullmatch(f"models/{model}/inputs/INPUT_DATA_MODEL_DEFAULT")
        ]
    except re.error as error:
        raise UsageError(f"-name {name!r} is not a regular expression: {error}") from error


def _nothing(name: str | None) -> str:
    directory, locked = locks_dir(), sorted(lock_file.read_all())
    if not locked:
        return (
            f"{directory} contains no locks; create one with `cbs artifacts lock URL... -o FILE`, "
            "or run `cbs artifacts fetch --url URL`, which needs no lock"
        )
    return (
        f"no locked model is named {name!r} (the expression must match the whole name); "
        f"{directory} locks {', '.join(locked[:5])}{' ...' if len(locked) > 5 else ''}"
    )


def _show(model: FetchedModel, types: list[str], screen: Screen) -> None:
    sizes = {f.path: f.size_bytes for f in model.manifest.files}
    size = sum(sizes[path] for path in model.files)
    screen.print(
        f"{model.manifest.model}  {len(model.files)} files, {human_bytes(size)}  {model.directory}"
    )
    there = {file.artifact_type for file in model.manifest.files}
    for kind in sorted(set(types) - there):
        reasons = [f.reason for f in model.manifest.failures if f.artifact_type == kind]
        why = f": {reasons[0]}" if reasons else ""
        screen.say(f"  {model.manifest.model} has no {kind}{why}", "yellow")
