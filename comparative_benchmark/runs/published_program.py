"""The published program that a trial starts from."""

from collections.abc import Mapping
from pathlib import Path

import attrs

from comparative_benchmark.results.record import ProgramSource


@attrs.frozen(kw_only=True)
class Program:
    """A published program that a compiler-level backend starts from.

    Attributes:
      files: with their sha256, by type of artifact.
      origin: model, URL and sha256 of the manifest by which they were fetched.
    """

    files: Mapping[str, Mapping[Path, str]] = attrs.field(hash=False)
    origin: Mapping[str, str] = attrs.field(hash=False)

    @property
    def paths(self) -> dict[str, list[str]]:
        """The files by type, as a worker is told."""
        return {kind: [str(path) for path in paths] for kind, paths in self.files.items()}

    @property
    def source(self) -> ProgramSource:
        """What a result says of it."""
        digests = {path.name: sha for paths in self.files.values() for path, sha in paths.items()}
        return ProgramSource(**self.origin, types=tuple(sorted(self.files)), digests=digests)
