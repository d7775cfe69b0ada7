"""In a worker: imports a user's file and makes its model."""

import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import random
import re
import sys
import traceback
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.files import import_file
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.places import OwnModule
from openxla.benchmark.user_models.python_files.candidates import (
    EXAMPLE_BATCH,
    EXAMPLE_INPUTS,
    Definitions,
)
from openxla.benchmark.user_models.python_files.outline import (
    INSTALLED,
    outline,
    own_files,
    source_digest,
)

# Makes a module draw the same weights in every process.
SEED = 0
_SCRIPT = "__main__"
_MOST_HEARD = 20_000
# The start of the line in which a command-line parser reports the mistake.
_COMPLAINT = re.compile(r"^(?:\S+: )?(?:fatal )?(?:error:|flags parsing error:)\s*", re.IGNORECASE)
_MOVE = f'move the code that runs it as a script below `if __name__ == "{_SCRIPT}":`'


class UserFile:
    """The module of a file, and the model in it.

    Raises:
      UserModelError: the file has changed since the run was planned, raises, or needs arguments.
    """

    def __init__(self, parameters: Parameters, seed: Callable[[int], object]) -> None:
        self.place = OwnModule(
            file=Path(str(parameters["source"])),
            module=str(parameters["module"]),
            callable=str(parameters["callable"]),
        )
        digest = source_digest(self.place.file, self.place.root, self.place.package)
        if digest != parameters["source_sha256"]:
            raise UserModelError(f"{self.place.file} has changed since this run was planned")
        self._seed = seed
        self._module = self._imported()

    def make(self, *, of_inputs: bool = False) -> Any:
        """Returns the model: the callable's return value, or the object of that name.

        Args:
          of_inputs: whether a function that needs arguments is itself the model.

        Raises:
          UserModelError: the callable raises, returns None, or needs arguments.
        """
        with self._naming_errors(f"{self.place}"):
            value: Any = self._module
            for part in self.place.callable.split("."):
                value = getattr(value, part)
        is_partial = isinstance(value, functools.partial)
        if not (inspect.isclass(value) or inspect.isroutine(value) or is_partial):
            return value
        if needed := self._needs_arguments(value):
            if of_inputs and not inspect.isclass(value):
                return value
            raise UserModelError(needed)
        self._seed_all()
        with self._naming_errors(f"{self.place}()"):
            made = value()
        if made is None:
            raise UserModelError(f"{self.place}() returned None")
        return made

    def example_inputs(self) -> Any:
        """Returns the result of the file's `example_inputs()`; None if it has no such function."""
        function = getattr(self._module, EXAMPLE_INPUTS, None)
        if not callable(function):
            return function
        self._seed_all()
        with self._naming_errors(f"{self.place.file.name}:{EXAMPLE_INPUTS}()"):
            return function()

    def function(self, name: str) -> Any:
        """Returns the file's function of that name; None without one."""
        return getattr(self._module, name, None)

    def example_batches(self, count: int) -> list[Any]:
        """Returns `count` results of `example_batch()`, by default of `example_inputs()`."""
        name = EXAMPLE_BATCH if self.function(EXAMPLE_BATCH) else EXAMPLE_INPUTS
        function = self.function(name)
        if function is None:
            raise UserModelError(f"{self.place.file.name} has no {EXAMPLE_BATCH}()")
        self._seed_all()
        with self._naming_errors(f"{self.place.file.name}:{name}()"):
            return [function() if callable(function) else function for _ in range(count)]

    def modules(self) -> list[ModuleType]:
        """Returns the file's module and the imported modules next to it."""
        root = self.place.root
        files = [(m, Path(getattr(m, "__file__", None) or "/")) for m in list(sys.modules.values())]
        beside = [m for m, f in files if f.is_relative_to(root) and INSTALLED.isdisjoint(f.parts)]
        return [self._module, *(module for module in beside if module is not self._module)]

    def _imported(self) -> ModuleType:
        self._find_own_modules()
        self._seed_all()
        with self._naming_errors(f"importing {self.place.file.name}", importing=True):
            if not self.place.dotted:
                return import_file(self._name(), self.place.file)
            package, _, last = self.place.dotted.rpartition(".")
            if self.place.module or self.place.file.stem in (last, "__init__"):
                module = importlib.import_module(self.place.dotted)
            else:
                importlib.import_module(package)
                module = import_file(self.place.dotted, self.place.file)
        there = Path(module.__file__ or "")
        if not self.place.module and not there.samefile(self.place.file):
            raise UserModelError(
                f"importing {self.place.file.name} as {self.place.dotted} loads {there}; rename "
                f"the package {self.place.package!r}"
            )
        return module

    def _seed_all(self) -> None:
        random.seed(SEED)
        np.random.seed(SEED)  # noqa: NPY002  # it is the user's code that draws
        self._seed(SEED)

    def _find_own_modules(self) -> None:
        """Makes imports find the modules next to the file, as in a script.

        Libraries import more modules later, also in child processes. For those, the folder comes
        last in the search path, so that a user's file cannot shadow a library.
        """
        root = str(self.place.root)
        if self.place.module:
            if sys.path[0] != root:
                sys.path.insert(0, root)
            return
        files = own_files(self.place.file, self.place.root, self.place.package)
        others = (file for file in files if file != self.place.file or self.place.dotted)
        names = {Path(file.relative_to(root).parts[0]).stem for file in others}
        if root not in sys.path:
            sys.path.append(root)
        paths = [i for i, f in enumerate(sys.meta_path) if f is importlib.machinery.PathFinder]
        sys.meta_path.insert(paths[0] if paths else len(sys.meta_path), _OwnModules(root, names))

    def _name(self) -> str:
        """Returns the name under which a script is imported: its own, unless a library has it.

        Pickles and neighbouring modules look it up by its own name.
        """
        name = re.sub(r"\W", "_", self.place.file.stem)
        if name != self.place.file.stem or not name.isidentifier():
            return f"brought_{name}"
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):  # a module without a specification
            return f"brought_{name}"
        is_own = spec is None or spec.origin == str(self.place.file)
        return name if is_own and name not in sys.stdlib_module_names else f"brought_{name}"

    def _needs_arguments(self, value: Any) -> str | None:
        try:
            signature = inspect.signature(value)
        except (ValueError, TypeError):  # some callables have no signature
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
    def _naming_errors(self, action: str, *, importing: bool = False) -> Iterator[None]:
        """Turns exceptions from the user's code into errors that name the place in the file."""
        try:
            with _as_script(self.place.file) as heard:
                yield
        except UserModelError:
            raise
        except SystemExit as error:
            line = _line(error, self.place.file)
            where = f" (line {line})" if line else ""
            way_out = _MOVE if importing else "give its command-line arguments defaults"
            raise UserModelError(
                f"{action} ended the program{where}: {_last_words(error, heard.text)}; {way_out}"
            ) from error
        except Exception as error:
            text = f"{action} raised {error_line(error, self.place.file)}"
            raise UserModelError(f"{text}{self._remedy(error, importing=importing)}") from error

    def _remedy(self, error: Exception, *, importing: bool) -> str:
        """Returns the end of a message that names a remedy; empty without one."""
        file, root = self.place.file, self.place.root
        name = (getattr(error, "name", None) or "").partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and name:
            folders = [folder for folder in (*root.parents, Path.cwd()) if _holds(folder, name)]
            if folders:
                return f"; it is in {folders[0]}: set PYTHONPATH={folders[0]}"
            return f"; install {name!r}, or set PYTHONPATH to the folder that contains it"
        loaded = getattr(sys.modules.get(name), "__file__", None)
        is_hidden = loaded and _holds(root, name) and not Path(loaded).is_relative_to(root)
        if isinstance(error, ImportError) and is_hidden:
            return f"; {loaded} was imported instead of {root / name}: rename yours"
        if importing:
            script = Definitions(outline(file), functions_are_models=False).script()
            return f"; {script.hint(file.name)}" if script.trains else ""
        return ""


class _OwnModules:
    """Finds modules in a user's folder before installed ones of the same name."""

    def __init__(self, root: str, names: Container[str]) -> None:
        self._root, self._names = root, names

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module; None if it is not one of the user's."""
        if path is not None or name not in self._names:
            return None
        return importlib.machinery.PathFinder.find_spec(name, [self._root])


class _Heard:
    """A stream that also keeps the end of its output."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.text = stream, ""

    def write(self, text: str) -> int:
        self.text = (self.text + text)[-_MOST_HEARD:]
        return int(self._stream.write(text) or 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Script(ModuleType):
    """Replaces `__main__` while a file is loaded, because pickles may refer to it."""

    def __init__(self, file: Path, before: ModuleType) -> None:
        super().__init__(_SCRIPT)
        self.__dict__.update(before.__dict__)
        self._file = str(file)

    def __getattr__(self, name: str) -> Any:
        for module in list(sys.modules.values()):
            if module is not self and getattr(module, "__file__", None) == self._file:
                return getattr(module, name)
        raise AttributeError(f"module {_SCRIPT!r} has no attribute {name!r}")


@contextmanager
def _as_script(file: Path) -> Iterator[_Heard]:
    """Runs code like a script without arguments.

    Yields a stream that holds the end of its standard error.
    """
    arguments, errors, main = sys.argv, sys.stderr, sys.modules[_SCRIPT]
    heard = _Heard(errors)
    sys.argv, sys.stderr = [str(file)], heard
    sys.modules[_SCRIPT] = _Script(file, main)
    try:
        yield heard
    finally:
        sys.argv, sys.stderr, sys.modules[_SCRIPT] = arguments, errors, main


def _last_words(error: SystemExit, heard: str) -> str:
    """Returns why a program ended: its message, or its exit code."""
    if isinstance(error.code, str) and error.code.strip():
        return " ".join(error.code.split())[:300]
    lines = [line.strip() for line in heard.splitlines() if line.strip()]
    if complaints := [line for line in lines if _COMPLAINT.match(line)]:
        return _COMPLAINT.sub("", complaints[-1])[:300].rstrip(".")
    code = f"exit code {error.code or 0}"
    return f"{lines[-1][:300]} ({code})" if lines and error.code else code


def _holds(folder: Path, name: str) -> bool:
    place = folder / name
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def _line(error: BaseException, file: Path | None) -> int | None:
    """Returns the last line of the user's file in an error's traceback."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if file is not None and frame.filename == str(file)
    ]
    return lines[-1] if lines else None


def error_line(error: BaseException, file: Path | None = None) -> str:
    """Returns an error as one line, with the last line of the user's file in its traceback."""
    line = _line(error, file)
    where = f" (line {line})" if line else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}{where}"


@contextmanager
def refusing(sentence: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raises UserModelError for exceptions: the sentence, a colon and the exception in one line.

    Args:
      sentence: what failed.
      kinds: kinds of exceptions; by default all.
    """
    caught = kinds or (Exception,)
    try:
        yield
    except caught as error:
        raise UserModelError(f"{sentence}: {error_line(error)}") from None
