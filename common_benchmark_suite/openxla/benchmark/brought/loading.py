"""In a worker: a file that was brought is imported, and what it offers is made."""

import importlib
import inspect
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from openxla.benchmark.brought.outline import source_digest
from openxla.benchmark.brought.own_modules import EXAMPLE_BATCH, EXAMPLE_INPUTS
from openxla.benchmark.brought.places import OwnModule
from openxla.benchmark.brought.wanted import BroughtError
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.python_files import import_file

# Weights that a module draws are the same in every process.
SEED = 0


class Brought:
    """The module of a file, and the model in it.

    Raises:
      BroughtError: the file has changed since the run was planned, raises, or needs arguments.
    """

    def __init__(self, parameters: Parameters, seed: Callable[[int], object]) -> None:
        self.place = OwnModule(
            file=Path(str(parameters["source"])),
            module=str(parameters["module"]),
            callable=str(parameters["callable"]),
        )
        package = self.place.module.partition(".")[0]
        if source_digest(self.place.file, self.place.root, package) != parameters["source_sha256"]:
            raise BroughtError(f"{self.place.file} has changed since this run was planned")
        self._seed = seed
        self._module = self._imported()

    def make(self, *, of_inputs: bool = False) -> Any:
        """Returns the model: what the callable returns, or the object of that name.

        Args:
          of_inputs: whether a function that needs arguments is itself the model.

        Raises:
          BroughtError: the callable raises, returns nothing, or needs arguments.
        """
        with self._told(f"{self.place}"):
            value: Any = self._module
            for part in self.place.callable.split("."):
                value = getattr(value, part)
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            return value
        if needed := self._needs_arguments(value):
            if of_inputs and not inspect.isclass(value):
                return value
            raise BroughtError(needed)
        random.seed(SEED)
        np.random.seed(SEED)  # noqa: NPY002  # it is the user's code that draws
        self._seed(SEED)
        with self._told(f"{self.place}()"):
            made = value()
        if made is None:
            raise BroughtError(f"{self.place}() returned None")
        return made

    def example_inputs(self) -> Any:
        """Returns what the file's `example_inputs()` gives; None where it has none."""
        function = getattr(self._module, EXAMPLE_INPUTS, None)
        if function is None:
            return None
        self._seed(SEED)
        with self._told(f"{self.place.file.name}:{EXAMPLE_INPUTS}()"):
            return function()

    def function(self, name: str) -> Any:
        """Returns what the file calls so; None if it has no such name."""
        return getattr(self._module, name, None)

    def example_batches(self, count: int) -> list[Any]:
        """Returns what `example_batch()`, or `example_inputs()` without it, gives in each call."""
        name = EXAMPLE_BATCH if self.function(EXAMPLE_BATCH) else EXAMPLE_INPUTS
        function = self.function(name)
        if function is None:
            raise BroughtError(f"{self.place.file.name} has no {EXAMPLE_BATCH}()")
        self._seed(SEED)
        with self._told(f"{self.place.file.name}:{name}()"):
            return [function() for _ in range(count)]

    def modules(self) -> list[ModuleType]:
        """Returns the file's module, and those beside it that define what it imports."""
        found = {self._module.__name__: self._module}
        for value in vars(self._module).values():
            module = sys.modules.get(getattr(value, "__module__", None) or "")
            file = getattr(module, "__file__", None)
            if module is None or not file or "site-packages" in Path(file).parts:
                continue
            if Path(file).is_relative_to(self.place.root):
                found[module.__name__] = module
        return list(found.values())

    def _imported(self) -> ModuleType:
        # As a script finds what stands beside it.
        if sys.path[0] != str(self.place.root):
            sys.path.insert(0, str(self.place.root))
        with self._told(f"importing {self.place.file.name}"):
            if self.place.module:
                return importlib.import_module(self.place.module)
            return import_file(f"brought_{self.place.file.stem}", self.place.file)

    def _needs_arguments(self, value: Any) -> str | None:
        try:
            signature = inspect.signature(value)
        except (ValueError, TypeError):  # some callables hide theirs
            return None
        try:
            signature.bind()
        except TypeError:
            return (
                f"{self.place}{signature} cannot be called without arguments; give them defaults, "
                "or write a function that returns the model"
            )
        return None

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Says where in the user's file something was raised."""
        try:
            yield
        except BroughtError:
            raise
        except (Exception, SystemExit) as error:
            raise BroughtError(f"{what} raised {told(error, self.place.file)}") from error


def told(error: BaseException, file: Path | None = None) -> str:
    """Returns an error in a line, with the last line of the user's file that it came through."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if file is not None and frame.filename == str(file)
    ]
    where = f" (line {lines[-1]})" if lines else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}{where}"
