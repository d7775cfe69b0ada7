"""Import paths of earlier versions, which plug-ins and stored definitions still use."""

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType


class OldNames(MetaPathFinder, Loader):
    """Finds modules under their former names, as the same module objects.

    Args:
      table: present names of packages and modules by former name.
    """

    def __init__(self, table: Mapping[str, str]) -> None:
        self.table = table
        # Modules that were packages; former names of their modules are found below them.
        self._packages = {new for old, new in table.items() if old.startswith(f"{new}.")}
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns a spec that loads the module of the present name; None for other modules."""
        if fullname in self._packages:
            return _found_as_package(fullname, path)
        present = self.present_name(fullname)
        if present is None:
            return None
        if present in self._packages:
            # Another checkout of the suite may still have the package.
            other = PathFinder.find_spec(fullname, path)
            if other is not None and other.origin is not None:
                return other
        spec = importlib.util.find_spec(present)
        is_package = spec is not None and spec.submodule_search_locations is not None
        origin = spec.origin if spec else None
        return ModuleSpec(fullname, self, origin=origin, is_package=is_package)

    def present_name(self, name: str) -> str | None:
        """Returns the present name of a module; None if it has never been renamed."""
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            if (present := self.table.get(".".join(parts[:count]))) is not None:
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


class _FormerPackage(SourceFileLoader):
    """Loads a module that was a package."""

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module with an empty search path, without which Python finds nothing below."""
        module.__path__ = []
        super().exec_module(module)


def _found_as_package(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    spec = PathFinder.find_spec(name, path)
    if spec and not spec.submodule_search_locations and isinstance(spec.loader, SourceFileLoader):
        spec.loader = _FormerPackage(spec.loader.name, spec.loader.path)
    return spec


def present_name(name: str) -> str:
    """Returns the present name of a module, which is the given one if it was never renamed."""
    finders = (finder for finder in sys.meta_path if isinstance(finder, OldNames))
    return next(filter(None, (finder.present_name(name) for finder in finders)), name)


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
