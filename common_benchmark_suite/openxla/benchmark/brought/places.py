"""From the text that names a model to the place where it is."""

import importlib.machinery
import os
import re
import shlex
import sys
from pathlib import Path

import attrs

from openxla.benchmark.brought.hub import PREFIX
from openxla.benchmark.brought.outline import dotted_name
from openxla.benchmark.brought.programs import KINDS, SAVED_MODEL, ProgramFile
from openxla.benchmark.brought.wanted import BroughtError
from openxla.benchmark.models.architectures.directories import CONFIG_FILE
from openxla.benchmark.nearest import did_you_mean

_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
# Exported programs that are not taken.
_PROGRAMS = (".pb", ".hlo", ".vmfb", ".xml")
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
_WEIGHTS = (".safetensors", ".h5", ".npz", ".gguf", ".keras", ".msgpack")
_NOTEBOOK = ".ipynb"
_FORMS = (
    "PATH.py, PATH.py:CALLABLE, PACKAGE.MODULE:CALLABLE, a Hugging Face directory or an exported "
    f"program ({', '.join(KINDS)})"
)


@attrs.frozen(kw_only=True)
class OwnModule:
    """A Python file.

    Attributes:
      file: absolute.
      module: its dotted name; empty for a file by its path.
      callable: what of it is meant; empty where nobody said.
      dotted: the name to import it by, also if it was given by its path; empty for a script.
    """

    file: Path
    module: str
    callable: str
    dotted: str = attrs.field()

    @dotted.default
    def _default_dotted(self) -> str:
        return self.module or dotted_name(self.file)

    @property
    def root(self) -> Path:
        """The folder that its imports start from."""
        depth = self.dotted.count(".") + (self.file.name == "__init__.py") * bool(self.dotted)
        return self.file.parents[depth]

    @property
    def package(self) -> str:
        """The top-level package that it is in; empty for a script."""
        return self.dotted.partition(".")[0]

    def named(self, name: str, folder: Path) -> str:
        """Returns the text that names one of its callables, to be typed in a folder."""
        if self.module:
            return f"{self.module}:{name}"
        file = self.file.relative_to(folder) if self.file.is_relative_to(folder) else self.file
        return shlex.quote(f"{file}:{name}" if name else str(file))

    def __str__(self) -> str:
        stem = self.module or self.file.name
        return f"{stem}:{self.callable}" if self.callable else stem


def is_model(text: str, folder: Path | None = None) -> bool:
    """Tells whether a text names a model that is brought, not cases of the catalogue.

    Args:
      text: as the user typed it.
      folder: where relative paths start; None for the current one.
    """
    if text.startswith(PREFIX):
        return True
    path, _, name = _parted(text)
    known = (".py", _NOTEBOOK, *KINDS, *_PROGRAMS, *_PICKLES, *_WEIGHTS)
    looks_so = text.endswith(known) or (bool(path.endswith(".py")) and bool(name))
    return looks_so or bool(_MODULE.fullmatch(text)) or (folder or Path()).joinpath(text).is_dir()


def place_of(text: str, folder: Path) -> OwnModule | ProgramFile | Path:
    """Returns the Python file, the exported program, or the directory, that a text names.

    Args:
      text: as the user typed it.
      folder: where relative paths start.

    Raises:
      BroughtError: there is no such thing, or it is one that cannot be measured.
    """
    if not text:
        raise BroughtError(f"no model given; expected {_FORMS}")
    path = folder / Path(text).expanduser()
    if path.is_dir():
        return _directory(path)
    before, colon, name = _parted(text)
    if colon and before.endswith(".py"):
        if not all(part.isidentifier() for part in name.split(".")):
            word = re.search(r"[\w.]+", name)
            meant = f"; did you mean {before}:{word[0]}?" if word else ""
            raise BroughtError(f"{text!r}: {name!r} is not the name of a callable{meant}")
        return _file(folder / Path(before).expanduser(), name)
    if path.suffix == ".py":
        return _file(path, "")
    if found := _MODULE.fullmatch(text):
        return OwnModule(file=_module_file(found[1], folder), module=found[1], callable=found[2])
    if path.suffix in KINDS:
        return _program(path)
    _refuse(text, path)
    if text.startswith("models/"):
        raise BroughtError(
            f"{text!r} is not a file or directory; select cases of the suite with -name"
        )
    if path.exists():
        raise BroughtError(f"{text} is not a model; expected {_FORMS}")
    raise BroughtError(f"no such file or directory: {text}{_near(path)} (expected {_FORMS})")


def _parted(text: str) -> tuple[str, str, str]:
    """Returns the file and the callable that a text names."""
    before, colon, name = text.partition(".py:")
    return (f"{before}.py", ":", name) if colon else text.rpartition(":")


def _directory(path: Path) -> Path | ProgramFile:
    if (path / "saved_model.pb").is_file():
        return ProgramFile(path=path.absolute(), kind=SAVED_MODEL)
    if not (path / CONFIG_FILE).is_file():
        raise BroughtError(
            f"{path} has neither {CONFIG_FILE} (Hugging Face) nor saved_model.pb; expected {_FORMS}"
        )
    return path.resolve()


def _file(path: Path, name: str) -> OwnModule:
    if not path.is_file():
        raise BroughtError(f"no such file: {path}{_near(path)}")
    return OwnModule(file=path.resolve(), module="", callable=name)


def _program(path: Path) -> ProgramFile:
    if not path.is_file():
        raise BroughtError(f"no such file: {path}{_near(path)}")
    return ProgramFile(path=path.absolute(), kind=KINDS[path.suffix])


def _refuse(text: str, path: Path) -> None:
    if path.suffix == _NOTEBOOK:
        script = shlex.quote(path.with_suffix(".py").name)
        raise BroughtError(
            f"{text} is a notebook; convert it with `jupyter nbconvert --to script "
            f"{shlex.quote(text)}`, keep the cells that define the model, and pass {script}"
        )
    if path.suffix in _PROGRAMS:
        raise BroughtError(
            f"{text}: unsupported kind of exported program; supported are {', '.join(KINDS)}"
        )
    if path.suffix in _PICKLES:
        raise BroughtError(
            f"{text} is a pickle, which holds code or only weights; pass the file that makes the "
            "module, PATH.py:CALLABLE"
        )
    if path.suffix in _WEIGHTS:
        raise BroughtError(f"{text} holds only weights; pass the directory with its config.json")


def _module_file(name: str, folder: Path) -> Path:
    """Returns the file of a module; no package on the way is imported."""
    search: list[str] | None = [str(folder), *sys.path]
    done: list[str] = []
    for part in name.split("."):
        done.append(part)
        spec = importlib.machinery.PathFinder.find_spec(".".join(done), search)
        if spec is None:
            raise BroughtError(f"no module {'.'.join(done)!r} on Python's module search path")
        search = list(spec.submodule_search_locations or [])
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise BroughtError(f"{name!r} is not a module in a Python file")
    return Path(spec.origin).absolute()


def _near(path: Path) -> str:
    try:
        there = [entry.name for entry in os.scandir(path.parent)]
    except OSError:
        return ""
    return did_you_mean(path.name, there)
