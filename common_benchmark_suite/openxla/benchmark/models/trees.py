"""Models in another OpenXLA suite checkout, in its folder `models`."""

import hashlib
from pathlib import Path

import attrs

from openxla.benchmark.def_types import DefinitionError, ParameterValue

MODELS = "openxla.benchmark.models"
# Module that makes such a model in a worker.
IN_TREE = "openxla.benchmark.models.in_tree"


@attrs.frozen(kw_only=True)
class Tree:
    """A folder `models`, and a module in it.

    Attributes:
      folder: absolute path.
      module: its dotted name relative to the folder, e.g. `jax.bert.bert_model`.
    """

    folder: Path
    module: str

    @property
    def file(self) -> Path:
        """The module's file."""
        return self.folder.joinpath(*self.module.split(".")).with_suffix(".py")

    def digest(self) -> str:
        """Returns the sha256 of the module and of all Python files next to and above it."""
        places = [self.file.parent, *self.file.parent.parents]
        inside = places[: places.index(self.folder) + 1]
        files = sorted(file for place in inside for file in place.glob("*.py"))
        lines = [
            f"{file.relative_to(self.folder)} {hashlib.sha256(file.read_bytes()).hexdigest()}"
            for file in files
        ]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def parameters(self) -> dict[str, ParameterValue]:
        """Returns model parameters that record the location and digest at planning time."""
        return {
            "tree": str(self.folder),
            "tree_module": self.module,
            "tree_sha256": self.digest(),
        }

    def check(self, digest: str) -> None:
        """Raises DefinitionError if the files have changed since the run was planned."""
        if not self.file.is_file():
            raise DefinitionError(f"{self.file} no longer exists")
        if self.digest() != digest:
            raise DefinitionError(
                f"{self.file}, or a file that it imports, has changed since this run was planned"
            )
