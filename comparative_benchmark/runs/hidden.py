"""Folders that a measured worker must not see: those with truths, in the artifact root."""

import glob
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import attrs

from comparative_benchmark.runs.published_program import Program
from openxla.benchmark.artifacts import workload_store
from openxla.benchmark.artifacts.cache import Cache

# Names the folders that a worker hides from itself before it runs foreign code.
HIDDEN_VARIABLE = "CBS_HIDDEN"


@attrs.frozen
class Hidden:
    """Folders that a worker hides, each with patterns of files that stay visible."""

    folders: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, workload_directory: Path | None = None, program: Program | None = None) -> Self:
        """Returns the folders to hide from a worker.

        Args:
          workload_directory: directory of its workload; None if it serves all workloads.
          program: the published program that it starts from.
        """
        of_all = workload_store.directories()
        own = "*" if workload_directory is None else glob.escape(workload_directory.name)
        cache = Cache().directory
        files = itertools.chain.from_iterable(program.files.values() if program else ())
        needed = [path.relative_to(cache) for path in files if path.is_relative_to(cache)]
        return cls(
            {
                str(of_all): [f"{own}/{kind}" for kind in workload_store.INPUT_KINDS],
                str(cache): [glob.escape(str(path)) for path in needed],
            }
        )

    def to_json(self) -> str:
        """Returns the value of the variable."""
        return json.dumps(self.folders)
