"""Other Python environments whose frameworks are raced against each other, or against ours.

`--env old=PATH,new=PATH`: each PATH is a virtual environment or its interpreter. Workers in all
environments run this harness and its models, so that only the installed packages differ.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import attrs

import openxla.benchmark
from comparative_benchmark.backends.api import backends

# Imports of the worker itself, apart from the standard library and frameworks.
_HARNESS_MODULES = ("attrs", "numpy", "ml_dtypes")
_OLDEST_PYTHON = (3, 11)
_PATIENCE_S = 60

_QUESTION = """
import importlib.metadata as m, importlib.util as u, json, sys
def missing(name):
    try:
        return u.find_spec(name) is None
    except ModuleNotFoundError:
        return True
# A package may be there twice: the first on the path is the one that is imported.
found = {d.metadata["Name"]: d.version for d in reversed(list(m.distributions()))}
print(json.dumps({
    "version": list(sys.version_info[:3]),
    "packages": [{"name": name, "version": found[name]} for name in sorted(found, key=str.lower)],
    "missing": [name for name in sys.argv[1:] if missing(name)],
}))
"""


class UnusableEnvironmentError(ValueError):
    """An environment cannot be used; the message follows the option's name and gives the remedy."""


@attrs.frozen(kw_only=True)
class Environment:
    """A named Python environment.

    Attributes:
      name: name chosen by the user, as displayed in tables.
      python: path of the interpreter.
      python_version: version, e.g. `3.11.9`.
      packages: installed packages, in the format of `host.python_environment`.
      missing: modules required by backends that are not installed.
    """

    name: str
    python: str
    python_version: str
    packages: tuple[dict[str, str], ...] = attrs.field(eq=False)
    missing: frozenset[str]

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of workers in this environment; our code is first on their path."""
        roots = [
            Path(__file__).parents[2],
            Path(str(openxla.benchmark.__file__)).parents[2],
        ]
        given = os.environ.get("PYTHONPATH")
        return {"PYTHONPATH": os.pathsep.join([*map(str, roots), *([given] if given else [])])}


def parse_environments(text: str) -> list[Environment]:
    """Returns the environments given as `name=PATH,name=PATH`.

    Raises:
      UnusableEnvironmentError: an environment cannot be used.
    """
    return [_inspect(name, python) for name, python in interpreters(text).items()]


def interpreters(text: str) -> dict[str, str]:
    """Returns the interpreter path of each name in `name=PATH,name=PATH`, without running it.

    Raises:
      UnusableEnvironmentError: an interpreter does not exist.
    """
    found: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, path = item.partition("=")
        if not separator or not name.isidentifier() or not path:
            raise UnusableEnvironmentError(f"{item!r} is not NAME=PATH")
        if name in found:
            raise UnusableEnvironmentError(f"names {name!r} twice")
        found[name] = _interpreter(name, Path(path).expanduser())
    if not found:
        raise UnusableEnvironmentError("names no environment: give NAME=PATH[,NAME=PATH]")
    return found


def _interpreter(name: str, path: Path) -> str:
    """Returns the interpreter of a virtual environment, or `path` itself if it is one.

    Symbolic links are not resolved, because a virtual environment's interpreter is a link.
    """
    python = path / "bin" / "python" if path.is_dir() else path
    if not shutil.which(python):
        raise UnusableEnvironmentError(
            f"{name}={path}: no interpreter there; make one with `python -m venv {path}`"
        )
    return str(python.absolute())


def _inspect(name: str, python: str) -> Environment:
    wanted = (
        names
        for backend in backends().values()
        for names in (*backend.modules.values(), *backend.program_modules.values())
    )
    modules = sorted({module for names in wanted for module in names})
    try:
        asked = subprocess.run(
            [python, "-P", "-c", _QUESTION, *_HARNESS_MODULES, *modules],
            capture_output=True,
            text=True,
            check=True,
            timeout=_PATIENCE_S,
        )
        told = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        words = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise UnusableEnvironmentError(
            f"{name}: {python} does not run ({words[-1] if words else error})"
        ) from error
    version = ".".join(map(str, told["version"]))
    if tuple(told["version"]) < _OLDEST_PYTHON:
        oldest = ".".join(map(str, _OLDEST_PYTHON))
        reason = f"{name}: Python {version} there, {oldest} is the oldest"
        raise UnusableEnvironmentError(reason)
    _check_harness(name, python, told["missing"])
    return Environment(
        name=name,
        python=python,
        python_version=version,
        packages=tuple(told["packages"]),
        missing=frozenset(told["missing"]),
    )


def _check_harness(name: str, python: str, missing: Sequence[str]) -> None:
    lacking = [module for module in _HARNESS_MODULES if module in missing]
    if lacking:
        packages = " ".join(module.replace("_", "-") for module in lacking)
        raise UnusableEnvironmentError(
            f"{name}: workers need {', '.join(lacking)} there; "
            f"run {python} -m pip install {packages}"
        )
