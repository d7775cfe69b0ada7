"""Finds model folders, reads their metadata without imports, and makes cases of them."""

import ast
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from comparative_benchmark.errors import UsageError
from comparative_benchmark.sources.yaml_files import YamlFile
from openxla.benchmark import testdata
from openxla.benchmark.def_types import (
    BenchmarkCase,
    Model,
    ModelFrameworkType,
    ModelImplementation,
    ParameterValue,
)
from openxla.benchmark.files import sha256_of
from openxla.benchmark.text import near

Protocol = Literal["2021", "current", "unknown"]
Test = Literal["train", "eval"]

_INIT = "__init__.py"
# A checkout has its models two folders down.
_DEEPEST = 4
# Python's parser raises the last two for deeply nested source.
_NOT_PARSED = (SyntaxError, ValueError, RecursionError, MemoryError)
_LEFT_OUT = frozenset({"__pycache__", ".git", ".hg", ".svn"})

TAG = "torchbench"
_MODULE = f"{__package__}.model"


class FolderError(UsageError, ValueError):
    """A path from the user is not valid; the message gives the remedy."""


@attrs.frozen(kw_only=True)
class Folder:
    """A model folder.

    Attributes:
      path: absolute path.
      sha256: digest of all its files, with their relative paths.
      protocol: protocol of its class `Model`; `unknown` if it is not written in `__init__.py`.
      batch_sizes: by test, the batch size from metadata.yaml for the CPU, or the class's default.
      not_implemented: pairs of test and device that metadata.yaml lists as such; None matches any.
        TorchBench's unit tests skip these; its runner tries them, and so do we.
      installs: whether there is an install.py.
      problem: why it cannot be run; None if it can be tried.
    """

    path: Path
    sha256: str
    protocol: Protocol = "unknown"
    batch_sizes: dict[str, int] = attrs.field(factory=dict)
    not_implemented: tuple[tuple[str | None, str | None], ...] = ()
    installs: bool = False
    problem: str | None = None

    @property
    def name(self) -> str:
        """The folder's name, which is also the module's."""
        return self.path.name

    def lists_as_not_implemented(self, test: str, device: str) -> bool:
        """Returns whether metadata.yaml lists a test as not implemented on a device."""
        return any(
            listed in (None, test) and where in (None, device)
            for listed, where in self.not_implemented
        )


def find(paths: Sequence[Path]) -> list[Folder]:
    """Returns the model folders at or below paths, by name.

    Raises:
      FolderError: a path does not exist, or contains no model folder.
    """
    folders: dict[Path, Folder] = {}
    for path in paths:
        if not path.is_dir():
            close = near(path.name, _sibling_names(path))
            hint = f"; did you mean {path.with_name(close)}?" if close else ""
            problem = "is a file, not a folder" if path.is_file() else "does not exist"
            raise FolderError(f"--torchbench {path} {problem}{hint}")
        places = list(_model_folders(path.absolute(), 0))
        if not places:
            raise FolderError(
                f"--torchbench {path}: contains no folder whose {_INIT} defines a class Model; "
                "create one with `cbs new-model --torchbench NAME`"
            )
        for place in places:
            folders.setdefault(place, read(place))
    return sorted(folders.values(), key=lambda folder: (folder.name, str(folder.path)))


def read(path: Path) -> Folder:
    """Returns a folder with its metadata."""
    path = path.absolute()
    try:
        problem = _outside_link(path)
        if problem:
            return Folder(path=path, sha256=_digest_of([str(path)]), problem=problem)
        sha256 = digest(path)
    except OSError as error:
        return Folder(path=path, sha256=_digest_of([str(path)]), problem=f"unreadable: {error}")
    problem = None if path.name.isidentifier() else "folder name is not a Python identifier"
    folder = Folder(
        path=path, sha256=sha256, installs=(path / "install.py").is_file(), problem=problem
    )
    try:
        tree = ast.parse((path / _INIT).read_bytes())
    except _NOT_PARSED:
        return folder  # its worker reports the error with its line
    model = _class_model(tree)
    metadata = _metadata(path / "metadata.yaml")
    has_one_size = _constants(model).get("ALLOW_CUSTOMIZE_BSIZE") is False
    return attrs.evolve(
        folder,
        protocol=_protocol(model),
        batch_sizes={**_defaults(model), **({} if has_one_size else _of_cpu(metadata))},
        not_implemented=_not_implemented(metadata),
    )


def digest(path: Path) -> str:
    """Returns the sha256 of a folder's files, without compiled and version-control files.

    Raises:
      OSError: a file cannot be read.
    """
    return _digest_of(
        f"{file.relative_to(path).as_posix()}\0{sha256_of(file)}" for file in _files(path)
    )


def _digest_of(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def _files(path: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(files):
            file = Path(place, name)
            if not name.endswith(".pyc") and file.is_file():  # reading a pipe would never end
                yield file


def _outside_link(path: Path) -> str | None:
    """Returns a link that leads out of a folder; None if all links stay inside."""
    inside = path.resolve()
    for place, folders, files in os.walk(path):
        for name in sorted((*folders, *files)):
            link = Path(place, name)
            # Path.resolve raises an error for cycles of links.
            if link.is_symlink() and not Path(os.path.realpath(link)).is_relative_to(inside):
                return (
                    f"{link.relative_to(path)} links to {link.readlink()}, outside the folder; "
                    "replace the link with a copy"
                )
    return None


def _model_folders(path: Path, depth: int) -> Iterator[Path]:
    init = path / _INIT
    if init.is_file() and _has_model(init):
        yield path
        return
    if depth == _DEEPEST:
        return
    for child in sorted(path.iterdir()):
        hidden = child.name.startswith(".") or child.name in _LEFT_OUT
        if child.is_dir() and not hidden:
            yield from _model_folders(child, depth + 1)


def _has_model(init: Path) -> bool:
    """Returns whether a file defines or imports `Model`, or cannot be parsed but names it."""
    content = init.read_bytes()
    try:
        tree = ast.parse(content)
    except _NOT_PARSED:
        return b"class Model" in content
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            return True
        if isinstance(node, ast.ImportFrom) and any(
            (name.asname or name.name) == "Model" for name in node.names
        ):
            return True
    return False


def _class_model(tree: ast.Module) -> ast.ClassDef | None:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return next((node for node in classes if node.name == "Model"), None)


def _protocol(model: ast.ClassDef | None) -> Protocol:
    for node in model.body if model else ():
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            named = any(argument.arg == "test" for argument in arguments)
            return "current" if named or node.args.kwarg else "2021"
    return "unknown"


def _defaults(model: ast.ClassDef | None) -> dict[str, int]:
    """Returns the batch sizes that a class sets to literal numbers, by test."""
    names = {"DEFAULT_TRAIN_BSIZE": "train", "DEFAULT_EVAL_BSIZE": "eval"}
    stated = _constants(model)
    sizes = {test: stated.get(name) for name, test in names.items()}
    return {test: size for test, size in sizes.items() if isinstance(size, int) and size > 0}


def _constants(model: ast.ClassDef | None) -> dict[str, Any]:
    """Returns the literal values that a class assigns to names."""
    constants = {}
    for node in model.body if model else ():
        targets, value = [], None
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign):
            targets, value = [node.target], node.value
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                constants[target.id] = value.value
    return constants


def _metadata(path: Path) -> Any:
    file = YamlFile(path)
    try:
        return file.plain(file.document())
    except UsageError:
        return None


def _of_cpu(said: Any) -> dict[str, int]:
    """Returns the batch sizes that metadata.yaml has for the CPU, by test."""
    for key in ("devices", "cpu"):  # some files have a list of devices, without batch sizes
        said = said.get(key) if isinstance(said, dict) else None
    sizes = said if isinstance(said, dict) else {}
    named = {test: sizes.get(f"{test}_batch_size") for test in ("train", "eval")}
    return {test: size for test, size in named.items() if isinstance(size, int) and size > 0}


def _not_implemented(said: Any) -> tuple[tuple[str | None, str | None], ...]:
    """Returns the listed tests and devices; entries for other options, e.g. `jit`, are left out."""
    listed = said.get("not_implemented") if isinstance(said, dict) else None
    return tuple(
        (item.get("test"), item.get("device"))
        for item in (listed if isinstance(listed, list) else ())
        if isinstance(item, dict) and item and set(item) <= {"test", "device"}
    )


def _sibling_names(path: Path) -> list[str]:
    try:
        return [item.name for item in path.parent.iterdir() if item.is_dir()]
    except OSError:
        return []


def repository(folder: Path) -> Path:
    """Returns the checkout that contains a folder, or else the folder's parent."""
    two_up = folder.parents[1] if len(folder.parents) > 1 else folder.parent
    return two_up.parent if two_up.name == "torchbenchmark" else folder.parent


def named(folders: Sequence[Folder]) -> dict[str, Folder]:
    """Returns folders by unique names: folders of the same name get a prefix from their parents."""
    counts = Counter(folder.name for folder in folders)
    by_name: dict[str, Folder] = {}
    for folder in folders:
        name = folder.name
        if counts[name] > 1:
            name = f"{folder.path.parent.name}.{name}"
        name = re.sub(r"[^A-Za-z0-9_.+-]", "_", name).lstrip("_.+-") or "folder"
        ends = ("", f".{folder.sha256[:8]}", *(f".{n}" for n in range(2, len(folders) + 1)))
        by_name[next(name + end for end in ends if name + end not in by_name)] = folder
    return by_name


def cases(
    folders: Mapping[str, Folder],
    test: str,
    *,
    name: str | None = None,
    batch_size: int | None = None,
    sizes: Mapping[Path, int] | None = None,
    packages: Mapping[Path, Path] | None = None,
    on_cpu: bool = True,
) -> list[BenchmarkCase]:
    """Returns the cases of folders whose name matches.

    Args:
      folders: by name, see `named`.
      test: `train` or `eval`.
      name: regular expression that must match the folder's name or the whole case's name.
      batch_size: batch size from the user.
      sizes: batch sizes of single folders, by path; these take precedence.
      packages: by a folder's path, the directory of packages that were installed for it.
      on_cpu: whether the cases run on the CPU; on other devices the folder chooses its batch size.

    Raises:
      FolderError: the expression is malformed, or matches nothing.
    """
    try:
        wanted = re.compile(name) if name is not None else None
    except re.error as error:
        raise FolderError(f"-name {name!r} is not a regular expression: {error}") from error
    every = {
        short: _case(
            short,
            folder,
            test,
            (sizes or {}).get(folder.path, batch_size),
            (packages or {}).get(folder.path),
            on_cpu,
        )
        for short, folder in folders.items()
    }
    cases = [
        case
        for short, case in every.items()
        if wanted is None or wanted.fullmatch(short) or wanted.fullmatch(case.name)
    ]
    if not cases:
        shown = ", ".join(list(every)[:8]) + (", ..." if len(every) > 8 else "")
        raise FolderError(f"no folder matches -name {name!r}; choices are {shown}")
    return cases


def _case(
    short: str,
    folder: Folder,
    test: str,
    batch_size: int | None,
    packages: Path | None,
    on_cpu: bool,
) -> BenchmarkCase:
    size = batch_size or (folder.batch_sizes.get(test) if on_cpu else None)
    parameters: dict[str, ParameterValue] = {
        "folder": str(folder.path),
        "folder_sha256": folder.sha256,
        "test": test,
        "packages": None if packages is None else str(packages),
    }
    if size is not None and (folder.protocol != "2021" or batch_size is not None):
        parameters["batch_size"] = size
    suffix = f"_BATCH{size}" if "batch_size" in parameters else ""
    return BenchmarkCase.build(
        model=Model(
            name=f"{short}_{test.upper()}_PT{suffix}",
            tags=[TAG, test],
            model_impl=ModelImplementation(
                name=f"torchbench.{short}",
                tags=[TAG],
                framework_type=ModelFrameworkType.PYTORCH,
                source_info=str(folder.path),
                module_path=_MODULE,
                own_process=True,
            ),
            model_parameters=parameters,
        ),
        input_data=testdata.INPUT_DATA_MODEL_DEFAULT,
    )
