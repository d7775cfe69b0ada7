"""`cbs artifacts ls`, `verify`, `gc` and `rm`: manage the local cache."""

import argparse
import json
import shutil

from comparative_benchmark.maintenance.artifacts import inventory
from comparative_benchmark.maintenance.artifacts.screen import Screen
from comparative_benchmark.terminal.options import EXIT_OK, EXIT_WRONG, UsageError
from openxla.benchmark.artifacts import lock_file, published_urls
from openxla.benchmark.artifacts.cache import Cache, Usage
from openxla.benchmark.artifacts.progress import human_bytes


def ls(options: argparse.Namespace) -> int:
    """Prints the contents of the cache; returns 0."""
    cache, screen = Cache(), Screen()
    found, usage = inventory.models(cache), cache.usage()
    free = _disk_free(cache)
    if options.json:
        document = {
            "directory": str(cache.directory),
            "models": [model.as_json() for model in found],
            "usage": {
                name: {"files": part.files, "size_bytes": part.size_bytes}
                for name, part in usage.items()
            },
            "disk_free_bytes": free,
        }
        print(json.dumps(document, indent=2))
        return EXIT_OK
    width = max((len(model.model) for model in found), default=0)
    for model in found:
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
        f"{cache.directory}: {human_bytes(whole)} in {usage['objects'].files} objects, "
        f"{_said(usage['partial'])} unfinished, {_said(usage['unpacked'])} unpacked; "
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
            screen.print(f"damaged, removed  {sha256}  {', '.join(names) or 'used by no model'}")
        for path in damaged:
            screen.print(f"damaged  {path}")
        screen.print(
            f"{objects.files} objects ({human_bytes(objects.size_bytes)}) and {checked} files of "
            f"workloads and checkpoints: {len(removed) + len(damaged)} damaged"
        )
    if removed:
        screen.say("run `cbs artifacts fetch` to fetch locked artifacts again")
    if damaged:
        screen.say(
            "the next run fetches damaged workloads again if they are locked, or generates them "
            "with --generate-artifacts; remove the folder of a damaged checkpoint"
        )
    return EXIT_WRONG if removed or damaged else EXIT_OK


def gc(options: argparse.Namespace) -> int:
    """Removes unreferenced objects and unfinished downloads; returns 0."""
    cache, screen = Cache(), Screen()
    dropped = []
    if options.unlocked:
        locked = [lock.manifest_sha256 for lock in lock_file.read_all().values()]
        views = set(cache.views_besides(locked))
        dropped = [model for model in inventory.models(cache) if model.view in views]
    word = "would be removed" if options.dry_run else "removed"
    for model in dropped:
        screen.print(f"{word}  {model.model}  {model.manifest_sha256[:16]} (not locked)")
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
    would = "would be " if options.dry_run else ""
    screen.print(f"{total.files} objects, {human_bytes(total.size_bytes)} {would}freed")
    return EXIT_OK


def rm(options: argparse.Namespace) -> int:
    """Removes models and the objects that only they use; returns 0.

    Raises:
      UsageError: a model is not in the cache.
    """
    cache, screen = Cache(), Screen()
    found = inventory.models(cache)
    known = sorted({model.model for model in found})
    if unknown := [name for name in options.models if name not in known]:
        choices = ", ".join(known[:5]) + (" ..." if len(known) > 5 else "") or "nothing"
        raise UsageError(
            f"{cache.directory} contains no artifacts of {unknown[0]!r}; it contains {choices}"
        )
    for name in dict.fromkeys(options.models):
        digests = {sha for model in found if model.model == name for sha in model.digests - {""}}
        cache.remove_model(name)
        published_urls.forget(cache, {m.manifest_sha256 for m in found if m.model == name})
        freed = cache.discard(digests)
        screen.print(f"removed  {name}  {_said(freed)} freed")
        kept = len([sha256 for sha256 in digests if cache.object_path(sha256).exists()])
        if kept:
            screen.say(f"  kept {kept} objects that other models, workloads or checkpoints use")
    return EXIT_OK


def _freed_by(cache: Cache, dropped: list[inventory.CachedModel]) -> Usage:
    """Returns the space freed by removing some views: objects linked only from them."""
    names: dict[str, int] = {}
    for model in dropped:
        paths = (
            [f.sha256 for f in model.manifest.files if f.path in model.present]
            if (model.manifest)
            else []
        )
        for sha256 in (*paths, model.manifest_sha256):
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
