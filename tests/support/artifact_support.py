"""Helpers of the tests of artifact stores: made-up models with their manifests."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from openxla.benchmark.artifacts import manifests
from openxla.benchmark.artifacts.manifests import (
    MANIFEST_FILE,
    ArtifactFile,
    LockedModel,
    Manifest,
    locked_model,
)

DATE = "2026-11-21T12:00:00+00:00"


def content(size: int, seed: int = 0) -> bytes:
    """Bytes that change under any compression or truncation."""
    return hashlib.shake_256(f"{seed}".encode()).digest(size)


def artifact_file(path: str, data: bytes, kind: str = "checkpoint", date: str = DATE):
    return ArtifactFile(
        path=path,
        artifact_type=kind,
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        producers={"jax": "0.10.2", "numpy": "2.4.0"},
        date=date,
    )


def manifest_of(files: Mapping[str, bytes], model: str = "MODEL", date: str = DATE) -> Manifest:
    entries = tuple(artifact_file(path, data, date=date) for path, data in files.items())
    return Manifest(model=model, files=entries)


def make_model(
    directory: Path, files: Mapping[str, bytes], model: str = "MODEL", date: str = DATE
) -> Path:
    """Writes a model's files and manifest into a directory."""
    for path, data in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    manifests.write_manifest(directory, manifest_of(files, model, date))
    return directory


def serve_model(server, files: Mapping[str, bytes], model: str = "MODEL") -> LockedModel:
    """Puts a model on a server; returns its lock."""
    text = manifest_of(files, model).to_bytes()
    for path, data in {**files, MANIFEST_FILE: text}.items():
        server.put(f"{model}/{path}", data)
    return locked_model(f"{server.url}/{model}", text)[1]
