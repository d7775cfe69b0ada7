"""Checks of files and definitions, without running a model."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from comparative_benchmark.maintenance.onboarding.findings import Finding
from openxla.benchmark.def_types import BenchmarkCase
from openxla.benchmark.temporary import temporary_folder

_INSTALL_TIMEOUT_S = 1800
_MOST_NAMED = 5


def definitions(framework: str, module_path: str, cases: Sequence[BenchmarkCase]) -> Finding:
    """Checks whether cases use the implementation."""
    if not cases:
        return Finding(
            check="definitions",
            framework=framework,
            state="failed",
            detail=f"no case of the catalogue uses {module_path}",
            fix="define a ModelImplementation with that module_path, and its cases; see "
            "docs/guides/extend/add-a-model.md",
        )
    return Finding(
        check="definitions", framework=framework, state="ok", detail=f"{len(cases)} cases use it"
    )


def docstrings(framework: str, folder: Path) -> Finding:
    """Checks whether modules, public classes, functions and methods have docstrings."""
    bare = [name for path in sorted(folder.glob("*.py")) for name in _undocumented(path)]
    if bare:
        return Finding(
            check="docstrings",
            framework=framework,
            state="failed",
            detail=f"no docstring: {_some(bare)}",
            fix="describe what each takes and returns, with shapes",
        )
    return Finding(check="docstrings", framework=framework, state="ok", detail="all present")


def requirements(framework: str, folder: Path) -> Finding:
    """Checks whether requirements.txt exists and the installed packages satisfy it.

    It does not query an index; `install` checks whether the requirements can be installed together.
    """
    path = folder / "requirements.txt"

    def failed(detail: str, fix: str) -> Finding:
        return Finding(
            check="requirements", framework=framework, state="failed", detail=detail, fix=fix
        )

    if not path.is_file():
        return failed(
            f"{path} is missing", "list the packages that the model imports, with versions"
        )
    try:
        wanted = list(_requirements(path))
    except (InvalidRequirement, OSError) as error:
        return failed(f"{path}: {error}", "write one requirement per line, such as jax==0.10.2")
    if not wanted:
        return failed(f"{path} lists no package", "list the packages that the model imports")
    lacking = [problem for item in wanted if (problem := _unsatisfied(item))]
    if lacking:
        return failed("; ".join(lacking), f"run {sys.executable} -m pip install -r {path}")
    return Finding(
        check="requirements",
        framework=framework,
        state="ok",
        detail=f"{', '.join(map(str, wanted))}: satisfied by the installed packages",
    )


def install(framework: str, folder: Path) -> Finding:
    """Installs requirements.txt into a fresh environment, from pip's configured index."""
    path = folder / "requirements.txt"
    with temporary_folder("install") as environment:
        python = os.path.join(environment, "bin", "python")  # noqa: PTH118  # for commands
        commands = (
            [sys.executable, "-P", "-m", "venv", environment],
            [python, "-P", "-m", "pip", "install", "--quiet", "-r", str(path)],
        )
        for command in commands:
            try:
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    timeout=_INSTALL_TIMEOUT_S,
                    check=False,
                )
                words = done.stderr if done.returncode else None
            except subprocess.TimeoutExpired:
                words = f"not finished after {_INSTALL_TIMEOUT_S} s"
            if words is not None:
                errors = [line for line in words.splitlines() if "ERROR" in line]
                last = (errors or words.strip().splitlines() or ["no message"])[-1]
                return Finding(
                    check="install",
                    framework=framework,
                    state="failed",
                    detail=last,
                    fix=f"choose versions in {path} that can be installed together",
                )
    return Finding(check="install", framework=framework, state="ok", detail="installed")


def _undocumented(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if ast.get_docstring(tree) is None:
        yield path.name
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            if ast.get_docstring(node) is None:
                yield f"{path.name}: {node.name}"
            for method in node.body if isinstance(node, ast.ClassDef) else []:
                if not isinstance(method, ast.FunctionDef):
                    continue
                # `__call__` needs a docstring for its shapes; the class documents `__init__`.
                public = not method.name.startswith("_") or method.name == "__call__"
                if public and ast.get_docstring(method) is None:
                    yield f"{path.name}: {node.name}.{method.name}"


def _requirements(path: Path) -> Iterator[Requirement]:
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("-r "):
            yield from _requirements(path.parent / text.removeprefix("-r ").strip())
        elif text:
            yield Requirement(text)


def _unsatisfied(requirement: Requirement) -> str | None:
    if requirement.marker is not None and not requirement.marker.evaluate():
        return None
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name} is not installed"
    # CPU builds have a local version, `2.13.0+cpu`, which satisfies `==2.13.0`.
    if not requirement.specifier.contains(installed, prereleases=True):
        return f"{requirement} is required, {installed} is installed"
    return None


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
