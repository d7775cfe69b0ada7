"""The child process that imports a userbenchmark; `cbs` itself never imports one.

The parent of the `userbenchmark/` folder is first on the import path, as with TorchBench's
`run_benchmark.py`. If it lacks `torchbenchmark` or `userbenchmark.utils`, this suite provides them.

The process is started as `python -P -m comparative_benchmark.interop.userbenchmarks.child`, with
`run NAME DIRECTORY ARGS...` or `detect NAME DIRECTORY QUESTION.json ANSWER.json`.
"""

import dataclasses
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from comparative_benchmark.interop.userbenchmarks import authoring

# Exit codes that benchmarks are unlikely to use.
NO_RUN, NO_DETECTOR = 64, 65
# Set if the checkout follows the installed packages, among them the candidate of a bisection.
LAST_VARIABLE = "CBS_USERBENCHMARK_LAST"
PACKAGE = "userbenchmark"
DETECTOR = "regression_detector"
_BASE_PACKAGE = "torchbenchmark"
_HOST = Path(__file__).parents[2] / "sources" / "torchbench" / "host"


def main(arguments: Sequence[str]) -> int:
    """Runs the requested action; returns the exit code."""
    action, name, directory, *rest = arguments
    folder = Path(directory)
    sys.path.insert(len(sys.path) if LAST_VARIABLE in os.environ else 0, str(folder.parent))
    _make_package(folder)
    _provide_base_package(folder.parent)
    _provide_utils(folder.parent)
    if action == "detect":
        return _detect(name, Path(rest[0]), Path(rest[1]))
    return _run(name, rest)


def _run(name: str, arguments: list[str]) -> int:
    # argparse prints the first item as the program's name.
    sys.argv[:] = ["run_benchmark.py", name, *arguments]
    run = _run_function(name)
    if run is None:
        return NO_RUN
    code = run(arguments)
    # Other return values have no defined meaning.
    return code if type(code) is int else 0


def _run_function(name: str) -> Callable[[list[str]], Any] | None:
    """Returns `run` from `__init__.py`, or else from `run.py`, as TorchBench does."""
    module = importlib.import_module(f"{PACKAGE}.{name}")
    function = getattr(module, "run", None)
    if isinstance(function, ModuleType):
        function = getattr(function, "run", None)
    if function is None and importlib.util.find_spec(f"{PACKAGE}.{name}.run"):
        function = getattr(importlib.import_module(f"{PACKAGE}.{name}.run"), "run", None)
    return function if callable(function) else None


def _detect(name: str, question: Path, answer: Path) -> int:
    if importlib.util.find_spec(f"{PACKAGE}.{name}.{DETECTOR}") is None:
        return NO_DETECTOR
    module = importlib.import_module(f"{PACKAGE}.{name}.{DETECTOR}")
    run = getattr(module, "run", None)
    if not callable(run):
        return NO_DETECTOR
    asked = json.loads(question.read_text(encoding="utf-8"))
    signals = run(asked["control"], asked["treatment"])
    if dataclasses.is_dataclass(signals) and not isinstance(signals, type):
        signals = dataclasses.asdict(signals)
    answer.write_text(json.dumps(signals, default=str), encoding="utf-8")
    return 0


def _make_package(directory: Path) -> None:
    """Imports that folder as the package `userbenchmark`, whatever its name is."""
    init = directory / "__init__.py"
    if init.is_file():
        spec = importlib.util.spec_from_file_location(
            PACKAGE, init, submodule_search_locations=[str(directory)]
        )
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules[PACKAGE] = package
        spec.loader.exec_module(package)
        return
    package = ModuleType(PACKAGE)
    package.__path__ = [str(directory)]
    sys.modules[PACKAGE] = package


def _provide_base_package(root: Path) -> None:
    """Provides `torchbenchmark` if neither the checkout nor an installation has it."""
    spec = importlib.util.find_spec(_BASE_PACKAGE)
    if spec is None or spec.origin is None:  # a folder without __init__.py does not count
        os.environ.setdefault("CBS_TORCHBENCH_REPO", str(root))
        sys.path.append(str(_HOST))


def _provide_utils(root: Path) -> None:
    """Provides `userbenchmark.utils` if the folder has none."""
    name = f"{PACKAGE}.utils"
    if importlib.util.find_spec(name) is not None:
        return
    utils = ModuleType(name, "Functions that TorchBench's userbenchmarks import.")
    public = {key: value for key, value in vars(authoring).items() if not key.startswith("_")}
    vars(utils).update(public, REPO_PATH=root)
    sys.modules[name] = utils
    vars(sys.modules[PACKAGE])["utils"] = utils


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
