"""`cbs new-backend`, `new-recipe` and `new-operator`: each creates an installable package.

A test compares the packages with the examples in the guides.
"""

import importlib.util
import re
import shlex
import string
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType

import attrs

from comparative_benchmark.backends.api import BACKENDS_GROUP, backends
from comparative_benchmark.backends.recipes.registry import GROUP as RECIPES_GROUP
from comparative_benchmark.backends.recipes.registry import RECIPES
from comparative_benchmark.errors import EXIT_OK, UsageError
from comparative_benchmark.maintenance.onboarding.new_model import write_files
from openxla.benchmark import synonyms
from openxla.benchmark.operators.definition import GROUP as OPERATORS_GROUP
from openxla.benchmark.text import printable

_TEMPLATES = Path(__file__).parent / "templates" / "package"
_SNAKE = r"[a-z][a-z0-9]*(_[a-z0-9]+)*"
# Longer names would require the templates to be formatted differently.
_LONGEST_NAME = 24
_ALL = "all"


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
            rule="lowercase letters, digits and single underscores",
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
            rule="words of lowercase letters and digits that begin with a letter, with single "
            "hyphens or underscores between them",
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
    files = new_files(kind, name)
    _check_free(kind, name)
    root = (into or Path.cwd()).absolute() / package_of(name)
    if root.exists():
        raise UsageError(f"{root} already exists; nothing was written")
    write_files(root, files)
    shown = shlex.quote(str(into / root.name if into else root.name))
    measure = string.Template(KINDS[kind].measure).substitute(name=name)
    print(f"\nInstall it: pip install -e {printable(shown)}")
    print(f"Test it: pytest {printable(shown)}")
    print(f"Replace the example with your {kind}, then measure it: {measure} -o results.json")
    return EXIT_OK


def package_of(name: str) -> str:
    """Returns the directory of a package, which is also the name of the distribution."""
    return f"cbs-{name.replace('_', '-')}"


def new_files(kind: str, name: str) -> dict[Path, str]:
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
        Path(string.Template(path).substitute(fields)): string.Template(
            (_TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
        ).substitute(fields)
        for path, template in sources.items()
    }


def _check_free(kind: str, name: str) -> None:
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
