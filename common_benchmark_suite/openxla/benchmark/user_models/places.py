"""Resolves the text that names a model to a file or directory."""

import contextlib
import importlib.machinery
import os
import re
import shlex
import sys
from pathlib import Path

import attrs

from openxla.benchmark import bounded
from openxla.benchmark.models.architectures.directories import CONFIG_FILE
from openxla.benchmark.text import did_you_mean
from openxla.benchmark.user_models.hugging_face.companion_formats import ADAPTER_FILE, MODULES_FILE
from openxla.benchmark.user_models.hugging_face.hub import PREFIX
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.programs.programs import KINDS, SAVED_MODEL, ProgramFile
from openxla.benchmark.user_models.programs.torch_archives import is_torch_export, is_torchscript
from openxla.benchmark.user_models.python_files.outline import dotted_name
from openxla.benchmark.user_models.refusals import (
    NOTEBOOK,
    PICKLES,
    SENTENCES,
    refusal_of,
    refuse_substitute,
)

_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
# Files that mark a directory with a configuration as a Hugging Face model.
_HUGGING_FACE = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin*")
_FORMS = (
    "PATH.py, PATH.py:CALLABLE, PACKAGE.MODULE:CALLABLE, a Hugging Face directory, an exported "
    f"program or a folder of them ({', '.join(KINDS)}, TorchScript)"
)


@attrs.frozen(kw_only=True)
class OwnModule:
    """A Python file.

    Attributes:
      file: absolute path.
      module: its dotted name; empty if the user gave a path.
      callable: name of the requested callable; empty if the user named none.
      dotted: the name to import it by, even if the user gave a path; empty for a script.
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
        """The folder from which its imports are resolved."""
        depth = self.dotted.count(".") + (self.file.name == "__init__.py") * bool(self.dotted)
        return self.file.parents[depth]

    @property
    def package(self) -> str:
        """The top-level package that contains it; empty for a script."""
        return self.dotted.partition(".")[0]

    def named(self, name: str, folder: Path) -> str:
        """Returns the text that names one of its callables, as typed in a folder."""
        if self.module:
            return f"{self.module}:{name}"
        file = self.file.relative_to(folder) if self.file.is_relative_to(folder) else self.file
        return shlex.quote(f"{file}:{name}" if name else str(file))

    def __str__(self) -> str:
        stem = self.module or self.file.name
        return f"{stem}:{self.callable}" if self.callable else stem


@attrs.frozen(kw_only=True)
class ProgramFolder:
    """A folder of exported programs; each is a model.

    Attributes:
      path: path of the folder.
      files: the programs in it, ordered by name.
    """

    path: Path
    files: tuple[Path, ...]


def is_model(text: str, folder: Path | None = None) -> bool:
    """Returns whether a text names a user's model instead of cases of the catalogue.

    Args:
      text: as the user typed it.
      folder: base of relative paths; None for the current directory.
    """
    if text.startswith(PREFIX):
        return True
    path, _, name = _split_target(text)
    known = (".py", *KINDS, *PICKLES, *SENTENCES, NOTEBOOK)
    looks_so = text.lower().endswith(known) or (bool(path.endswith(".py")) and bool(name))
    return looks_so or bool(_MODULE.fullmatch(text)) or path_of(text, folder or Path()).is_dir()


def place_of(text: str, folder: Path) -> OwnModule | ProgramFile | ProgramFolder | Path:
    """Returns the Python file, exported program or programs, or directory that a text names.

    Args:
      text: as the user typed it.
      folder: base of relative paths.

    Raises:
      UserModelError: there is nothing of that name, or it cannot be measured.
    """
    if not text:
        raise UserModelError(f"no model given; expected {_FORMS}")
    path = path_of(text, folder)
    if path.is_dir():
        return _directory(path)
    before, colon, name = _split_target(text)
    if colon and before.endswith(".py"):
        if not all(part.isidentifier() for part in name.split(".")):
            word = re.search(r"[\w.]+", name)
            meant = f"; did you mean {before}:{word[0]}?" if word else ""
            raise UserModelError(f"{text!r}: {name!r} is not the name of a callable{meant}")
        return _file(path_of(before, folder), name)
    if path.suffix == ".py":
        return _file(path, "")
    if match := _MODULE.fullmatch(text):
        return OwnModule(file=_module_file(match[1], folder), module=match[1], callable=match[2])
    if path.suffix.lower() in KINDS:
        return _program(text, path)
    if path.suffix.lower() in PICKLES and path.is_file():
        return _torch_program(text, path)
    if path.is_file():
        refuse_substitute(path, text)
    if refusal := refusal_of(text, path):
        raise UserModelError(refusal)
    if text.startswith("models/"):
        raise UserModelError(
            f"{text!r} is not a file or directory; select the suite's cases with -name"
        )
    if path.exists():
        raise UserModelError(f"{text} is not a model; expected {_FORMS}")
    raise UserModelError(f"no such file or directory: {text}{_hint(path)} (expected {_FORMS})")


def path_of(text: str, folder: Path) -> Path:
    """Returns the path that a text names, with the user's home for `~`.

    Args:
      text: as the user typed it.
      folder: base of relative paths.
    """
    return folder / os.path.expanduser(text)  # noqa: PTH111  # keeps `~` of an unknown user


def _split_target(text: str) -> tuple[str, str, str]:
    """Returns the file and the callable that a text names."""
    before, colon, name = text.partition(".py:")
    return (f"{before}.py", ":", name) if colon else text.rpartition(":")


def folder_of_programs(path: Path) -> ProgramFolder | None:
    """Returns the programs in a folder that contains no other kind of model; None without one."""
    # Names may be too long, and folders unreadable: `place_of` reports such cases.
    with contextlib.suppress(OSError):
        has_config = (path / CONFIG_FILE).is_file()
        if any((path / name).is_file() for name in (MODULES_FILE, ADAPTER_FILE)):
            return None
        if not path.is_dir() or (path / "saved_model.pb").is_file():
            return None
        if has_config and any(any(path.glob(name)) for name in _HUGGING_FACE):
            return None
        names = sorted(entry.name for entry in os.scandir(path) if entry.is_file())
        # An exporter writes the configuration next to the ONNX files.
        ends = (".onnx",) if has_config else tuple(KINDS)
        files = tuple(path / name for name in names if name.lower().endswith(ends))
        return ProgramFolder(path=path, files=files) if files else None
    return None


def _directory(path: Path) -> Path | ProgramFile | ProgramFolder:
    if (path / "saved_model.pb").is_file():
        refuse_substitute(path / "saved_model.pb")
        for file in sorted(path.glob("variables/*")):
            refuse_substitute(file, has_header=False)
        return ProgramFile(path=path.absolute(), kind=SAVED_MODEL)
    if programs := folder_of_programs(path):
        return programs
    if refusal := refusal_of(str(path), path):
        raise UserModelError(refusal)
    if not any((path / name).is_file() for name in (CONFIG_FILE, MODULES_FILE, ADAPTER_FILE)):
        raise UserModelError(
            f"{path} has neither {CONFIG_FILE} (Hugging Face) nor saved_model.pb; expected {_FORMS}"
        )
    return path.resolve()


def _file(path: Path, name: str) -> OwnModule:
    if not path.is_file():
        raise UserModelError(f"no such file: {path}{_hint(path)}")
    if path.stat().st_size:
        refuse_substitute(path)
    return OwnModule(file=path.resolve(), module="", callable=name)


def _program(text: str, path: Path) -> ProgramFile:
    if not path.is_file():
        raise UserModelError(f"no such file: {path}{_hint(path)}")
    refuse_substitute(path, text)
    return ProgramFile(path=path.absolute(), kind=KINDS[path.suffix.lower()])


def _torch_program(text: str, path: Path) -> ProgramFile:
    """Returns the program in a file that PyTorch may have written, by the archive's content."""
    refuse_substitute(path, text)
    try:
        suffix = bounded.call(_torch_suffix, text, path)
    except bounded.TooCostlyError as error:
        raise UserModelError(f"{text} cannot be read: {error}") from error
    return ProgramFile(path=path.absolute(), kind=KINDS[suffix])


def _torch_suffix(text: str, path: Path) -> str:
    """Returns the suffix that fits a file's content."""
    if is_torchscript(path):
        return ".torchscript"
    if is_torch_export(path):
        return ".pt2"
    raise UserModelError(str(refusal_of(text, path)))


def _module_file(name: str, folder: Path) -> Path:
    """Returns the file of a module, without importing its parent packages."""
    search: list[str] | None = [str(folder), *sys.path]
    done: list[str] = []
    for part in name.split("."):
        done.append(part)
        spec = importlib.machinery.PathFinder.find_spec(part, search)
        if spec is None and len(done) == 1:
            with contextlib.suppress(ValueError):  # editable installs have their own finders
                spec = importlib.util.find_spec(part)
        if spec is None:
            raise UserModelError(f"no module {'.'.join(done)!r} on Python's module search path")
        search = list(spec.submodule_search_locations or [])
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise UserModelError(f"module {name!r} is not a Python source file")
    return Path(spec.origin).absolute()


def _hint(path: Path) -> str:
    try:
        there = [entry.name for entry in os.scandir(path.parent)]
    except OSError:
        return ""
    return did_you_mean(path.name, there)
