"""Digests of what runs read: workloads and checkpoints under the root directory."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from openxla.benchmark.files import sha256_of
from openxla.benchmark.root import root_dir

_MANIFEST = "manifest.json"


def damaged_files() -> tuple[int, list[Path]]:
    """Returns how many files were compared with their manifests, and those that differ.

    A manifest that cannot be read is damaged itself; nothing can be said of what it describes.
    """
    checked, damaged = 0, []
    for path, facts in _described():
        checked += 1
        if not _matches(path, facts):
            damaged.append(path)
    return checked, damaged


def _described() -> Iterator[tuple[Path, Mapping[str, Any] | None]]:
    """Yields files with what they should be; a bad manifest with None."""
    for kind in ("workloads", "checkpoints"):
        for manifest in sorted((root_dir() / kind).glob(f"[!.]*/{_MANIFEST}")):
            try:
                files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
                described = [(manifest.parent / name, dict(facts)) for name, facts in files.items()]
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                yield manifest, None
                continue
            yield from described


def _matches(path: Path, facts: Mapping[str, Any] | None) -> bool:
    if facts is None:
        return False
    try:
        same_size = path.stat().st_size == facts.get("size_bytes")
        return same_size and sha256_of(path) == facts.get("sha256")
    except OSError:
        return False
