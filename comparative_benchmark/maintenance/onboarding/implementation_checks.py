"""Checks of a model's implementations: of their files, and of what they do in workers."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import attrs
import numpy as np
from packaging.requirements import InvalidRequirement, Requirement

from comparative_benchmark.analysis.verification.verification import MIN_RELATIVE_SPREAD
from comparative_benchmark.backends.api import BackendInfo
from comparative_benchmark.engine.messages import Prepared
from comparative_benchmark.engine.session import (
    InProcessSession,
    Session,
    SessionEnded,
    call_function,
)
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.maintenance.onboarding import findings
from comparative_benchmark.maintenance.onboarding.findings import Array, Finding, State
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.def_types import BenchmarkCase
from openxla.benchmark.files import temporary_folder

_INSTALL_TIMEOUT_S = 1800
_MOST_NAMED = 5


def definitions(framework: str, module_path: str, cases: Sequence[BenchmarkCase]) -> Finding:
    """Checks whether cases use the implementation."""
    if not cases:
        fix = (
            "define a ModelImplementation with this module_path, and cases for it; see "
            "docs/guides/extend/add-a-model.md"
        )
        detail = f"no case in the catalogue uses {module_path}"
        return Finding("definitions", framework, "failed", detail, fix)
    return Finding("definitions", framework, "ok", f"used by {len(cases)} cases")


def docstrings(framework: str, path: Path) -> Finding:
    """Checks whether a module, its public classes, functions and methods have docstrings."""
    try:
        bare = list(_undocumented(path))
    except (SyntaxError, ValueError) as error:
        detail = f"{path.name} cannot be parsed: {error}"
        return Finding("docstrings", framework, "failed", detail, "correct the module's syntax")
    if bare:
        fix = "document arguments and return values, with shapes"
        return Finding("docstrings", framework, "failed", f"no docstring: {_some(bare)}", fix)
    return Finding("docstrings", framework, "ok", "all present")


def requirements(framework: str, folder: Path) -> Finding:
    """Checks whether requirements.txt exists and the installed packages satisfy it.

    It does not query an index; `install` checks whether the requirements can be installed together.
    """
    path = folder / "requirements.txt"

    def failed(detail: str, fix: str) -> Finding:
        return Finding("requirements", framework, "failed", detail, fix)

    if not path.is_file():
        return failed(
            f"{path} is missing", "list the packages that the model imports, with versions"
        )
    try:
        wanted = list(_requirements(path))
    except (InvalidRequirement, OSError) as error:
        return failed(f"{path}: {error}", "write one requirement per line, such as jax==0.10.2")
    if not wanted:
        return failed(f"{path} lists no packages", "list the packages that the model imports")
    lacking = [problem for item in wanted if (problem := _unsatisfied(item))]
    if lacking:
        return failed("; ".join(lacking), f"run {sys.executable} -m pip install -r {path}")
    detail = f"{', '.join(map(str, wanted))}: satisfied by the installed packages"
    return Finding("requirements", framework, "ok", detail)


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
                    errors="replace",
                    timeout=_INSTALL_TIMEOUT_S,
                    check=False,
                )
                words = done.stderr if done.returncode else None
            except subprocess.TimeoutExpired:
                words = f"not finished after {_INSTALL_TIMEOUT_S} s"
            if words is not None:
                errors = [line for line in words.splitlines() if "ERROR" in line]
                last = (errors or words.strip().splitlines() or ["no message"])[-1]
                fix = f"choose versions in {path} that can be installed together"
                return Finding("install", framework, "failed", last, fix)
    return Finding("install", framework, "ok", "installed")


def _undocumented(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"), path.name)
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
        elif text and not text.startswith("-"):
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
        return f"{requirement} is required, but {installed} is installed"
    return None


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


# Another seed must change the outputs by more than this share of their scale.
_LEAST_CHANGE = 1e-3
# In the order in which they run: the first one without a finding ended the worker.
RUNS = ("types", "signal", "seed", "memory", "repeatable")


@attrs.frozen(kw_only=True)
class ElsewhereSettings(RunSettings):
    """Settings for workers that import the installed suite, not the current directory's."""

    def environment(self, backend: BackendInfo, work_dir: Path, cache_dir: Path) -> dict[str, str]:
        """See `RunSettings.environment`."""
        return {**super().environment(backend, work_dir, cache_dir), "PYTHONSAFEPATH": "1"}


@attrs.frozen
class _MemoryProbe:
    """See `probes.memory`."""

    model_bytes: int
    held_bytes: list[int]
    alive: bool


class WorkerChecks:
    """The checks of one implementation; afterwards, `truth` has its float64 outputs."""

    def __init__(
        self,
        framework: str,
        cases: Sequence[BenchmarkCase],
        backend: BackendInfo,
        settings: RunSettings,
        folder: Path,
    ) -> None:
        """Creates the checks.

        Args:
          framework: folder of the implementation, e.g. `jax`.
          cases: the case to check, and the same in other data types.
          backend: computes truth and reference in that framework.
          settings: settings of the workers.
          folder: folder for temporary files.
        """
        self.truth: list[Array] | None = None
        self._framework = framework
        self._cases = cases
        self._backend = backend
        self._settings = settings
        self._folder = folder
        self._files = 0

    def run(self) -> list[Finding]:
        """Runs the checks."""
        case = self._cases[0]
        findings = [self._runs_elsewhere(case)]
        try:
            with self._session("first") as session:
                first = self._prepare(session, case)
                self.truth = [np.array(v) for v in array_files.load_all(first / "truth", "output")]
                findings.append(self._types(session, case, first))
                findings.append(self._signal(self.truth))
                findings.append(self._seed(session, case, first))
                findings.append(self._memory(session, case, first))
            with self._session("second") as session:
                findings.append(self._repeatable(first, self._prepare(session, case)))
        except SessionEnded as ended:
            findings += self._not_run(ended, {finding.check for finding in findings})
        return findings

    def _runs_elsewhere(self, case: BenchmarkCase) -> Finding:
        module_path = case.model.model_impl.module_path
        directory = self._folder / "elsewhere"
        directory.mkdir()
        command = [sys.executable, "-P", "-m", str(module_path)]
        environment = self._settings.environment(self._backend, directory, directory)
        fix = (
            f"make `cd /tmp && python -m {module_path}` work: import only from openxla.benchmark, "
            "open files next to __file__, and end the module with shared_model.run_once"
        )

        def failed(detail: str) -> Finding:
            return self._finding("runs elsewhere", "failed", detail, fix)

        try:
            done = subprocess.run(
                command,
                cwd=directory,
                env={**os.environ, **environment},
                capture_output=True,
                errors="replace",
                timeout=self._settings.limits.deadline_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return failed(f"not finished after {self._settings.limits.deadline_s:g} s")
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return failed(f"exit code {done.returncode}: {last}")
        if "output_0" not in done.stdout:
            return failed("output_0 was not printed")
        return self._finding("runs elsewhere", "ok", done.stdout.splitlines()[0])

    def _types(
        self, session: Session | InProcessSession, case: BenchmarkCase, prepared: Path
    ) -> Finding:
        folders = [prepared, *(self._prepare(session, other) for other in self._cases[1:])]
        problems = []
        for item, folder in zip(self._cases, folders, strict=True):
            inputs = findings.specs(folder / "inputs", "input")
            outputs = findings.specs(folder / "reference", "output")
            problems += findings.other_than_declared(item, inputs, outputs)
        if problems:
            fix = "compute in the model's data type throughout, and declare the returned types"
            return self._finding("types", "failed", "; ".join(problems), fix)
        names = ", ".join(str(item.data_type) for item in self._cases)
        return self._finding("types", "ok", f"as declared, in {names}")

    def _signal(self, truth: Sequence[Array]) -> Finding:
        fix = (
            "scale the seeded tensors (TensorInit.stddev) so that activations stay of order one "
            "up to the last layer"
        )
        for index, values in enumerate(truth):
            wide = findings.widest(values)
            if not np.isfinite(wide).all():
                return self._finding("signal", "failed", f"output {index} is not finite", fix)
            scale, spread = float(np.sqrt(np.mean(np.abs(wide) ** 2))), float(wide.std())
            if scale == 0 or (wide.size > 1 and spread <= MIN_RELATIVE_SPREAD * scale):
                detail = f"output {index} is constant, so agreement proves nothing"
                return self._finding("signal", "failed", detail, fix)
        spreads = ", ".join(f"{findings.widest(v).std():.3g}" for v in truth)
        return self._finding("signal", "ok", f"standard deviation {spreads}")

    def _seed(
        self, session: Session | InProcessSession, case: BenchmarkCase, first: Path
    ) -> Finding:
        if case.model.model_impl.architecture is None:
            detail = "the model has no architecture, so it has no seeded checkpoint"
            return self._finding("seed", "not_applicable", detail)
        seed = case.model.model_parameters.get("seed", 0)
        other = self._prepare(session, case, seed=(seed if isinstance(seed, int) else 0) + 1)
        change = max(
            findings.relative_difference(values, truth)
            for values, truth in zip(
                array_files.load_all(other / "truth", "output"),
                array_files.load_all(first / "truth", "output"),
                strict=True,
            )
        )
        if change <= _LEAST_CHANGE:
            fix = "load every weight from the checkpoint, and pass `seed` to the checkpoint"
            detail = f"another seed changes the outputs by only {change:.1e} of their scale"
            return self._finding("seed", "failed", detail, fix)
        return self._finding("seed", "ok", f"changes the outputs by {change:.2g} of their scale")

    def _repeatable(self, first: Path, second: Path) -> Finding:
        for kind, stem in (("inputs", "input"), ("reference", "output")):
            pairs = zip(
                array_files.numbered(first / kind, stem),
                array_files.numbered(second / kind, stem),
                strict=True,
            )
            for ours, theirs in pairs:
                if ours.read_bytes() != theirs.read_bytes():
                    fix = "seed all random numbers, and do not depend on the time or on set order"
                    detail = f"{kind}/{ours.name} differs in a second process"
                    return self._finding("repeatable", "failed", detail, fix)
        return self._finding("repeatable", "ok", "identical bytes in a second process")

    def _memory(
        self, session: Session | InProcessSession, case: BenchmarkCase, first: Path
    ) -> Finding:
        arguments = {
            "module_path": case.model.model_impl.module_path,
            "parameters": dict(case.model.model_parameters),
            "inputs": [str(path) for path in array_files.numbered(first / "inputs", "input")],
        }
        probe = "comparative_benchmark.maintenance.onboarding.probes:memory"
        seen = call_function(session, probe, arguments, _MemoryProbe)
        held, model_bytes = seen.held_bytes, seen.model_bytes
        growth = held[-1] - held[0]
        fix = "do not keep models, weights or outputs in modules, caches or hooks"
        if seen.alive:
            detail = "the model is still alive after its last reference was dropped"
            return self._finding("memory", "failed", detail, fix)
        if growth > model_bytes * (len(held) - 1) / 2:
            detail = f"{len(held) - 1} additional models leave {growth} additional bytes allocated"
            return self._finding("memory", "failed", detail, fix)
        return self._finding("memory", "ok", f"{model_bytes} bytes, freed")

    def _prepare(
        self, session: Session | InProcessSession, case: BenchmarkCase, **changes: int
    ) -> Path:
        """Returns a folder with the inputs, truth and reference of a case."""
        self._files += 1
        directory = self._folder / f"prepared-{self._files}"
        session.call(
            Prepared,
            module_path=case.model.model_impl.module_path,
            parameters={**case.model.model_parameters, **changes},
            reference=case.model.model_impl.reference or self._backend.reference,
            directory=str(directory),
            second=False,
        )
        return directory

    def _session(self, name: str) -> Session | InProcessSession:
        work_dir = self._folder / name
        work_dir.mkdir()
        return self._settings.open_session(
            self._backend,
            None,
            work_dir=work_dir,
            cache_dir=work_dir,
            log_file=self._folder / f"{name}.log",
        )

    def _not_run(self, ended: SessionEnded, done: set[str]) -> list[Finding]:
        """Returns the check that ended the worker as failed, and later ones as not run."""
        first, *others = [check for check in RUNS if check not in done] or ["repeatable"]
        detail = f"{ended.status.value} in {ended.phase}: {ended.reason}"
        return [
            self._finding(first, "failed", detail, "fix create_model and forward"),
            *(self._finding(check, "not_run", "the model did not run") for check in others),
        ]

    def _finding(self, check: str, state: State, detail: str, fix: str | None = None) -> Finding:
        return Finding(check, self._framework, state, detail, fix)
