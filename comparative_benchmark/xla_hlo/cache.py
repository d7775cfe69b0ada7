"""A disk cache of compiled programs, for processes that compile the same program again."""

import os
from collections.abc import Callable
from pathlib import Path

import attrs

from comparative_benchmark.backends.frameworks import xla_executables
from comparative_benchmark.xla_hlo.pjrt import Client, Executable
from comparative_benchmark.xla_hlo.private_jaxlib import XlaError


@attrs.define
class ExecutableCache:
    """A directory of serialised executables; without a directory, nothing is cached.

    Attributes:
      directory: the cache directory.
      hits: number of executables found.
      misses: number of executables not found, and then compiled.
    """

    directory: Path | None
    hits: int = 0
    misses: int = 0

    def get(self, key: str, client: Client, compile_: Callable[[], Executable]) -> Executable:
        """Returns the executable with this key, compiled if it is not cached."""
        path = self.directory / f"{key}.xla" if self.directory else None
        if path is not None and path.is_file():
            try:
                found = client.deserialize(path.read_bytes())
            except XlaError as error:  # from another machine, or damaged: treated as missing
                print(f"cannot load the cached executable {path.name}: {error}", flush=True)
            else:
                self.hits += 1
                return found
        made = compile_()
        self.misses += 1
        if path is not None and (serialized := xla_executables.serialize(made.loaded)):
            _write(path, serialized)
        return made


def _write(path: Path, content: bytes) -> None:
    """Writes a file atomically, so that a crash leaves no partial file with that name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)
