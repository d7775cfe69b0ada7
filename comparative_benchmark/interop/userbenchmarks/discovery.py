"""Which userbenchmarks there are: folders of `userbenchmark/`, by their names."""

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
    """A userbenchmark cannot be found or run; the message says why and what to do."""


@attrs.frozen(kw_only=True)
class Userbenchmark:
    """One of them."""

    name: str
    folder: Path

    @property
    def ci(self) -> Ci | None:
        """Where and how often a CI runs it; None if none does.

        Raises:
          CiError: its `ci.yaml` is invalid.
        """
        return read_ci(self.folder / FILE)

    @property
    def has_detector(self) -> bool:
        """Whether it says itself what a regression is."""
        return (self.folder / f"{child.DETECTOR}.py").is_file()

    @property
    def summary(self) -> str:
        """The first line of its docstring; read as text, never imported."""
        import ast

        try:
            tree = ast.parse((self.folder / "__init__.py").read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            return ""
        return (ast.get_docstring(tree) or "").partition("\n")[0]


def find_folder(given: Path | None) -> Path:
    """Returns the folder of userbenchmarks: the given one, that here, or that of the checkout.

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
    """Tells whether a folder is a userbenchmark; TorchBench's need no `__init__.py`."""
    return any((path / name).is_file() for name in ("__init__.py", "run.py"))


def find(name: str, folder: Path) -> Userbenchmark:
    """Returns the userbenchmark of that name.

    Raises:
      UserbenchmarkError: there is none.
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
    """Returns where the output of all userbenchmarks of a folder goes."""
    return folder.parent / USERBENCHMARK_OUTPUT_PREFIX
