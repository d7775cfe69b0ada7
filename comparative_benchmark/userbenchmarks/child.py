"""The process that imports a userbenchmark; nothing of it is ever imported by `cbs` itself.

It is started as `python -P -m comparative_benchmark.userbenchmarks.child`, with `run NAME DIRECTORY
ARGS...` or `detect NAME DIRECTORY QUESTION.json ANSWER.json`.
"""

import dataclasses
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

# Exit codes that a benchmark's own ones are unlikely to be.
NO_RUN, NO_DETECTOR = 64, 65
PACKAGE = "userbenchmark"
DETECTOR = "regression_detector"


def main(arguments: Sequence[str]) -> int:
    """Does what the parent asks; returns the exit code."""
    action, name, directory, *rest = arguments
    _make_package(Path(directory))
    if action == "detect":
        return _detect(name, Path(rest[0]), Path(rest[1]))
    return _run(name, rest)


def _run(name: str, arguments: list[str]) -> int:
    run = _run_function(name)
    if run is None:
        return NO_RUN
    code = run(arguments)
    # Whatever else it returns is none of ours.
    return code if type(code) is int else 0


def _run_function(name: str) -> Callable[[list[str]], Any] | None:
    """Returns `run` of `__init__.py`, or else of `run.py`, as TorchBench has it."""
    module = importlib.import_module(f"{PACKAGE}.{name}")
    found = getattr(module, "run", None)
    if isinstance(found, ModuleType):
        found = getattr(found, "run", None)
    if found is None and importlib.util.find_spec(f"{PACKAGE}.{name}.run"):
        found = getattr(importlib.import_module(f"{PACKAGE}.{name}.run"), "run", None)
    return found if callable(found) else None


def _detect(name: str, question: Path, answer: Path) -> int:
    if importlib.util.find_spec(f"{PACKAGE}.{name}.{DETECTOR}") is None:
        return NO_DETECTOR
    module = importlib.import_module(f"{PACKAGE}.{name}.{DETECTOR}")
    run = getattr(module, "run", None)
    if not callable(run):
        return NO_DETECTOR
    asked = json.loads(question.read_text(encoding="utf-8"))
    found = run(asked["control"], asked["treatment"])
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        found = dataclasses.asdict(found)
    answer.write_text(json.dumps(found, default=str), encoding="utf-8")
    return 0


def _make_package(directory: Path) -> None:
    """Makes `userbenchmark` a package of that folder, without a change of the search path."""
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
