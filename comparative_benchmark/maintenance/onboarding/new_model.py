"""`cbs new-model`: creates a new architecture, or a TorchBench folder, complete and correct.

The suite discovers the files by their location, so existing files are not changed.
"""

import keyword
import re
import shutil
import string
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import attrs

import openxla.benchmark
from comparative_benchmark.errors import EXIT_OK, UsageError
from openxla.benchmark import synonyms
from openxla.benchmark.text import printable

_SUITE = Path("common_benchmark_suite/openxla/benchmark")
_TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
# Longer names would require the templates to be formatted differently.
_LONGEST_NAME = 24


@attrs.frozen(kw_only=True)
class Framework:
    """Names and packages related to a framework.

    Attributes:
      package: its folder of models.
      module: the module needed to run its models.
      competitor: a competitor that starts quickly and runs its models.
    """

    package: str
    module: str
    competitor: str


FRAMEWORKS: Mapping[str, Framework] = MappingProxyType(
    {
        framework.package: framework
        for framework in (
            Framework(package="pt", module="torch", competitor="pt_inductor:eager"),
            Framework(package="jax", module="jax", competitor="jax_xla:xla"),
            Framework(package="tf", module="tensorflow", competitor="tf_xla:graph"),
        )
    }
)


def write_model(name: str, *, frameworks: str, into: Path | None, torchbench: bool) -> int:
    """Writes the files of a new model and prints what to do next; returns 0.

    Args:
      name: name of the model.
      frameworks: frameworks separated by commas, see `parse_frameworks`.
      into: checkout to write to; None for the one that contains the working directory.
      torchbench: whether to write a TorchBench model folder, in `into` or the working directory.

    Raises:
      UsageError: the name is invalid, or files exist; nothing has been written.
    """
    if torchbench:
        return _write_folder(name, (into or Path.cwd()).absolute())
    root = _checkout(into)
    files = new_files(name, parse_frameworks(frameworks), root)
    write_files(root, files)
    upper = name.upper()
    print(f"\nList its cases: cbs list -name 'models/{upper}_.+'")
    print(f"Replace the example with your model, then run: cbs check-model {name}")
    if Path(str(openxla.benchmark.__file__)).parents[3] != root:
        print(
            f"This `cbs` is not installed from {root}: run `pip install -e .` there first.",
            file=sys.stderr,
        )
    return EXIT_OK


def _write_folder(name: str, root: Path) -> int:
    """Writes a TorchBench model folder and prints what to do next."""
    _check_name(name)
    if (root / name).exists():
        raise UsageError(f"{root / name} already exists; nothing was written")
    fields = {"name": name, "title": name.replace("_", " ").capitalize()}
    templates = sorted((_TEMPLATES / "torchbench").glob("*.txt"))
    write_files(root, {Path(name) / path.stem: _substituted(path, fields) for path in templates})
    print(f"\nRun it: cbs run --torchbench {root / name} -o results.json")
    print(f"Put your model in net.py, then run: cbs check-model --torchbench {root / name}")
    return EXIT_OK


def parse_frameworks(text: str) -> list[Framework]:
    """Returns the frameworks in a list such as `pt,jax`.

    Raises:
      UsageError: one is unknown, or the list is empty.
    """
    typed = (name.strip() for name in text.split(",") if name.strip())
    names = list(dict.fromkeys(map(synonyms.framework_folder, typed)))
    unknown = [name for name in names if name not in FRAMEWORKS]
    if unknown or not names:
        what = f"unknown framework {', '.join(unknown)}" if unknown else "no framework given"
        raise UsageError(f"--framework: {what}; choices are {', '.join(FRAMEWORKS)}")
    return [FRAMEWORKS[name] for name in names]


def new_files(name: str, frameworks: Sequence[Framework], root: Path) -> dict[Path, str]:
    """Returns the contents of each new file, by its path in the checkout.

    Raises:
      UsageError: the name is invalid, or files exist.
    """
    _check_name(name)
    title = name.replace("_", " ").capitalize()
    fields = {
        "name": name,
        "upper": name.upper(),
        "title": title,
        "class_name": "".join(part.capitalize() for part in name.split("_")),
        "model": name.replace("_", "-"),
        "tag": name.replace("_", "-"),
    }
    spelt = ", ".join(f'"{item.package.upper()}"' for item in frameworks)
    competitors = [f'    "{item.module}": "{item.competitor}",\n' for item in frameworks]
    files = {
        _SUITE / "models" / "architectures" / f"{name}.py": _filled("architecture.py", fields),
        _SUITE / "comparative_suite" / f"{name}_definitions.py": _filled(
            "definitions.py", fields, frameworks=f"[{spelt}]"
        ),
        Path("tests/frameworks") / f"test_agreement_{name}.py": _filled(
            "test.py", fields, competitors="".join(competitors)
        ),
    }
    for item in frameworks:
        folder = _SUITE / "models" / item.package
        files[folder / f"{name}.py"] = _filled(f"{item.package}_model.py", fields)
    _check_free(name, files, root)
    return files


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise UsageError(
            f"{name!r} is not a valid model name; use lowercase letters, digits and single "
            "underscores, but no Python keyword, e.g. my_mlp"
        )
    if len(name) > _LONGEST_NAME:
        raise UsageError(f"model name {name!r} is longer than {_LONGEST_NAME} characters")


def _check_free(name: str, files: Mapping[Path, str], root: Path) -> None:
    """Raises UsageError if a file, or a model of that name in any framework, exists."""
    others = [root / _SUITE / "models" / package / f"{name}.py" for package in FRAMEWORKS]
    others.append(root / _SUITE / "comparative_suite" / name)
    taken = [path for path in (*others, *(root / path for path in files)) if path.exists()]
    if taken:
        raise UsageError(
            f"{name!r} already exists: {taken[0].relative_to(root)}; nothing was written"
        )


def write_files(root: Path, files: Mapping[Path, str]) -> None:
    """Writes all files and prints their paths; writes none if one cannot be written.

    Raises:
      UsageError: a file cannot be written.
    """
    made: list[Path] = []
    try:
        for path, content in files.items():
            for folder in reversed((root / path).parents):
                if not folder.exists():
                    folder.mkdir()
                    made.append(folder)
            made.append(root / path)
            (root / path).write_text(content, encoding="utf-8")
    except OSError as error:
        for path in reversed(made):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        raise UsageError(f"{error.filename} cannot be written: {error.strerror}") from error
    for path in files:
        print(printable(str(root / path)))


def _checkout(given: Path | None) -> Path:
    """Returns the checkout to write into.

    Raises:
      UsageError: no checkout was found.
    """
    if given is not None:
        candidates = [given.absolute()]
    else:
        here = Path.cwd()
        candidates = [here, *here.parents, Path(str(openxla.benchmark.__file__)).parents[3]]
    for candidate in candidates:
        if (candidate / _SUITE).is_dir() and (candidate / "pyproject.toml").is_file():
            return candidate
    raise UsageError(f"{candidates[0]} is not in a checkout of the suite; name one with --into")


def _filled(template: str, fields: Mapping[str, str], **more: str) -> str:
    return _substituted(_TEMPLATES / f"{template}.txt", {**fields, **more})


def _substituted(template: Path, fields: Mapping[str, str]) -> str:
    return string.Template(template.read_text(encoding="utf-8")).substitute(fields)
