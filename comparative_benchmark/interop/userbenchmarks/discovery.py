"""Finds userbenchmarks: subfolders of `userbenchmark/`, by name."""

import re
from pathlib import Path

import attrs

import comparative_benchmark
from comparative_benchmark.interop.userbenchmarks import child
from comparative_benchmark.interop.userbenchmarks.authoring import USERBENCHMARK_OUTPUT_PREFIX
from comparative_benchmark.interop.userbenchmarks.ci import FILE, Ci, read_ci
from openxla.benchmark.text import did_you_mean

FOLDER = "userbenchmark"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class UserbenchmarkError(Exception):
    """A userbenchmark cannot be found or run; the message gives the reason and the remedy."""


@attrs.frozen(kw_only=True)
class Userbenchmark:
    """A userbenchmark."""

    name: str
    folder: Path

    @property
    def ci(self) -> Ci | None:
        """Its CI platform and schedule; None if no CI runs it.

        Raises:
          CiError: its `ci.yaml` is invalid.
        """
        return read_ci(self.folder / FILE)

    @property
    def has_detector(self) -> bool:
        """Whether it defines its own regression detector."""
        return (self.folder / f"{child.DETECTOR}.py").is_file()

    @property
    def summary(self) -> str:
        """The first line of its docstring, parsed without importing the module."""
        import ast

        try:
            tree = ast.parse((self.folder / "__init__.py").read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            return ""
        return (ast.get_docstring(tree) or "").partition("\n")[0]


def find_folder(given: Path | None) -> Path:
    """Returns the folder of userbenchmarks: as given, else below here, else in the checkout.

    Raises:
      UserbenchmarkError: there is none.
    """
    if given is not None:
        if not given.is_dir():
            raise UserbenchmarkError(f"--directory {given} is not a directory")
        return given.absolute()
    checkout = Path(comparative_benchmark.__file__).parents[1] / FOLDER
    for folder in (Path.cwd() / FOLDER, checkout):
        if folder.is_dir():
            return folder.absolute()
    raise UserbenchmarkError(
        f"no directory {FOLDER}/ here; change to the checkout, or use --directory DIR"
    )


def find_all(folder: Path) -> list[Userbenchmark]:
    """Returns all userbenchmarks of a folder, by name."""
    return [
        Userbenchmark(name=path.name, folder=path)
        for path in sorted(folder.iterdir())
        if path.is_dir() and _NAME.fullmatch(path.name) and _is_one(path)
    ]


def _is_one(path: Path) -> bool:
    """Returns whether a folder is a userbenchmark; TorchBench's may lack `__init__.py`."""
    return any((path / name).is_file() for name in ("__init__.py", "run.py"))


def find(name: str, folder: Path) -> Userbenchmark:
    """Returns the userbenchmark with that name.

    Raises:
      UserbenchmarkError: it does not exist.
    """
    found = {item.name: item for item in find_all(folder)}
    if name in found:
        return found[name]
    if _NAME.fullmatch(name) and (folder / name).is_dir():
        raise UserbenchmarkError(f"{folder / name} has no __init__.py with run(args)")
    meant = did_you_mean(name, found)
    raise UserbenchmarkError(
        f"no userbenchmark {name!r} in {folder}{meant} (see cbs userbenchmark list)"
    )


def output_base(folder: Path) -> Path:
    """Returns the parent folder for the output of all userbenchmarks."""
    return folder.parent / USERBENCHMARK_OUTPUT_PREFIX
