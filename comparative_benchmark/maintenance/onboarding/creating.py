"""Commands that create files: `cbs new-model`, `new-backend`, `new-recipe` and `new-operator`.

A new model is a new architecture, or a TorchBench folder, complete and correct. The suite
discovers its files by their location, so existing files are not changed. A new backend, recipe
or operator is an installable package; a test compares the packages with the guides' examples.
"""

import importlib.util
import keyword
import re
import shlex
import shutil
import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType

import attrs

import openxla.benchmark
from comparative_benchmark.backends.api import BACKENDS_GROUP, backends
from comparative_benchmark.backends.recipes.registry import GROUP as RECIPES_GROUP
from comparative_benchmark.backends.recipes.registry import RECIPES
from comparative_benchmark.errors import EXIT_OK, UsageError
from openxla.benchmark import synonyms
from openxla.benchmark.operators.definition import GROUP as OPERATORS_GROUP
from openxla.benchmark.text import printable

_SUITE = Path("common_benchmark_suite/openxla/benchmark")
_TEMPLATES = Path(__file__).parent / "templates"
_SNAKE = r"[a-z][a-z0-9]*(_[a-z0-9]+)*"
# Longer names would require the templates to be formatted differently.
_LONGEST_NAME = 24
_ALL = "all"


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
    files = model_files(name, parse_frameworks(frameworks), root)
    write_files(root, files)
    upper = name.upper()
    print(f"\nList the cases: cbs list -name 'models/{upper}_.+'")
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
    print(f"\nRun the model: cbs run --torchbench {root / name} -o results.json")
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


def model_files(name: str, frameworks: Sequence[Framework], root: Path) -> dict[Path, str]:
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
    _check_model_free(name, files, root)
    return files


def _check_name(name: str) -> None:
    if not re.fullmatch(_SNAKE, name) or keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise UsageError(
            f"{name!r} is not a valid model name; use lowercase letters, digits and single "
            "underscores, e.g. my_mlp; begin with a letter, and do not use a Python keyword"
        )
    if len(name) > _LONGEST_NAME:
        raise UsageError(f"model name {name!r} is longer than {_LONGEST_NAME} characters")


def _check_model_free(name: str, files: Mapping[Path, str], root: Path) -> None:
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
        candidates = [given.resolve()]
    else:
        here = Path.cwd()
        candidates = [here, *here.parents, Path(str(openxla.benchmark.__file__)).parents[3]]
    for candidate in candidates:
        if (candidate / _SUITE).is_dir() and (candidate / "pyproject.toml").is_file():
            return candidate
    raise UsageError(f"{candidates[0]} is not in a checkout of the suite; pass one with --into")


def _filled(template: str, fields: Mapping[str, str], **more: str) -> str:
    return _substituted(_TEMPLATES / f"{template}.txt", {**fields, **more})


def _substituted(template: Path, fields: Mapping[str, str]) -> str:
    return string.Template(template.read_text(encoding="utf-8")).substitute(fields)


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of package.

    Attributes:
      group: group of its entry points.
      object: name of the object that a module registers there.
      name: regular expression for valid names; `rule` describes it in words.
      example: a valid name.
      sources: templates by target file; a package of one module is a single file.
      measure: a command that runs a benchmark with it.
    """

    group: str
    object: str
    name: str
    rule: str
    example: str
    sources: Mapping[str, str]
    measure: str


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "backend": Kind(
            group=BACKENDS_GROUP,
            object="BACKEND",
            name=_SNAKE,
            rule="lowercase letters, digits and single underscores, beginning with a letter",
            example="my_backend",
            sources={
                "${module}/__init__.py": "backend.py",
                "${module}/worker.py": "backend_worker.py",
                "test_${module}.py": "backend_test.py",
            },
            measure="cbs micro run --op all --shapes 64x64x64 --backend pt_inductor:eager,${name}",
        ),
        "recipe": Kind(
            group=RECIPES_GROUP,
            object="RECIPE",
            # A hyphen and a digit would be parsed as the parameter of a shorter recipe.
            name=r"[a-z][a-z0-9]*([_-][a-z][a-z0-9]*)*",
            rule="words of lowercase letters and digits that begin with a letter, joined by "
            "single hyphens or underscores",
            example="int8wo-asym",
            sources={"${module}.py": "recipe.py", "test_${module}.py": "recipe_test.py"},
            measure="cbs micro run --op linear --shapes 64x64x64 "
            "--backend openvino:latency,openvino:latency+${name}",
        ),
        "operator": Kind(
            group=OPERATORS_GROUP,
            object="OPERATOR",
            # Names of cases have this suffix if the operator runs forward and backward.
            name=rf"(?!.*_fwd_bwd$){_SNAKE}",
            rule="lowercase letters, digits and single underscores, not ending in _fwd_bwd",
            example="my_operator",
            sources={"${module}.py": "operator.py", "test_${module}.py": "operator_test.py"},
            measure="cbs micro run --op ${name} --shapes 64x64x64 --backend all",
        ),
    }
)


def write_package(kind: str, name: str, *, into: Path | None) -> int:
    """Writes a package with a new backend, recipe or operator, and prints what to do next.

    Args:
      kind: a key of `KINDS`.
      name: name of the backend, recipe or operator.
      into: parent directory; None for the working directory.

    Raises:
      UsageError: the name is invalid, or the directory exists; nothing has been written.
    """
    files = package_files(kind, name)
    _check_package_free(kind, name)
    root = (into or Path.cwd()).absolute() / package_of(name)
    if root.exists():
        raise UsageError(f"{root} already exists; nothing was written")
    write_files(root, files)
    shown = shlex.quote(str(into / root.name if into else root.name))
    measure = string.Template(KINDS[kind].measure).substitute(name=name)
    print(f"\nInstall the package: pip install -e {printable(shown)}")
    print(f"Test the package: pytest {printable(shown)}")
    print(f"Replace the example with your {kind}, then measure it: {measure} -o results.json")
    return EXIT_OK


def package_of(name: str) -> str:
    """Returns the directory of a package, which is also the name of the distribution."""
    return f"cbs-{name.replace('_', '-')}"


def package_files(kind: str, name: str) -> dict[Path, str]:
    """Returns the contents of each file, by its path in the package.

    Raises:
      UsageError: the name is invalid.
    """
    wanted = KINDS[kind]
    if not re.fullmatch(wanted.name, name):
        raise UsageError(
            f"{name!r} is not a valid {kind} name; use {wanted.rule}, e.g. {wanted.example}"
        )
    if len(name) > _LONGEST_NAME:
        raise UsageError(f"{kind} name {name!r} is longer than {_LONGEST_NAME} characters")
    module = f"cbs_{name.replace('-', '_')}"
    is_package = any(path.startswith("${module}/") for path in wanted.sources)
    fields = {
        "name": name,
        "module": module,
        "package": package_of(name),
        "class_name": "".join(part.capitalize() for part in name.split("_")),
        "kind": kind,
        "group": wanted.group,
        "object": wanted.object,
        "setuptools": f'{"packages" if is_package else "py-modules"} = ["{module}"]',
    }
    sources = {"pyproject.toml": "pyproject.toml", **wanted.sources}
    return {
        Path(string.Template(path).substitute(fields)): _filled(f"package/{template}", fields)
        for path, template in sources.items()
    }


def _check_package_free(kind: str, name: str) -> None:
    """Raises UsageError if the name has another meaning to users, or Python can import it."""
    if meaning := dict(_meanings(kind)).get(name):
        raise UsageError(f"{kind} name {name!r} already means {meaning}; choose another name")
    # Include packages that cannot be imported: duplicate entry points hide each other.
    for point in entry_points(group=KINDS[kind].group):
        if point.name == name:
            owner = point.dist.name if point.dist else point.module
            raise UsageError(f"{kind} {name!r} already exists in {owner}; choose another name")
    module = f"cbs_{name.replace('-', '_')}"
    if importlib.util.find_spec(module) is not None:
        raise UsageError(f"a module {module} is already installed; choose another name")


def _meanings(kind: str) -> Iterator[tuple[str, str]]:
    """Yields names that already have a meaning in the same option, and that meaning."""
    if kind == "operator":
        yield _ALL, "every operator"
    if kind == "backend":
        yield _ALL, "every backend"
        for name in synonyms.backends():
            yield name.replace("-", "_"), f"the backend {synonyms.backend(name)}"
    if kind == "recipe":
        # Users type recipes together with the options of compilers.
        for backend in backends().values():
            for compiler in backend.compilers:
                for option in compiler.options:
                    yield option, f"an option of {backend.name}:{compiler.name}"
        for recipe in RECIPES:
            yield recipe.name, f"the recipe {recipe.usage}"
