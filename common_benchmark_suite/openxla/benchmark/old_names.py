"""Import paths of earlier versions, which plug-ins and stored definitions still use."""

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType


class OldNames(MetaPathFinder, Loader):
    """Finds modules under their former names, as the same module objects.

    Args:
      table: present names of packages and modules by former name.
    """

    def __init__(self, table: Mapping[str, str]) -> None:
        self._table = table
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Returns a spec that loads the module of the present name; None for other modules."""
        present = self.present_name(fullname)
        if present is None:
            return None
        spec = importlib.util.find_spec(present)
        is_package = spec is not None and spec.submodule_search_locations is not None
        origin = spec.origin if spec else None
        return ModuleSpec(fullname, self, origin=origin, is_package=is_package)

    def present_name(self, name: str) -> str | None:
        """Returns the present name of a module; None if it has never been renamed."""
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            if (present := self._table.get(".".join(parts[:count]))) is not None:
                return ".".join([present, *parts[count:]])
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns the module of the present name."""
        module = importlib.import_module(str(self.present_name(spec.name)))
        # The import system is about to replace it by the spec of the former name.
        self._specs[module.__name__] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restores the module's own spec; the module has run already."""
        module.__spec__ = self._specs.pop(module.__name__)

    def get_code(self, name: str) -> CodeType | None:
        """Returns the code that `python -m` runs."""
        spec = importlib.util.find_spec(str(self.present_name(name)))
        loader: object = spec and spec.loader
        return loader.get_code(spec.name) if spec and hasattr(loader, "get_code") else None


def install(package: str, table: Mapping[str, str]) -> None:
    """Makes modules of a package importable under former names.

    The finder comes first: git leaves folders of moved packages behind if they contain compiled
    files, and these would be found as namespace packages.

    Args:
      package: the package of both names.
      table: former names below the package, each with its present name below the package.
    """
    names = {f"{package}.{old}": f"{package}.{new}" for old, new in table.items()}
    sys.meta_path.insert(0, OldNames(names))
