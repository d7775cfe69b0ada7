"""Checks that run a model, with separate workers for each framework."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np

from comparative_benchmark.analysis.verification.verification import MIN_RELATIVE_SPREAD
from comparative_benchmark.backends.api import BackendInfo
from comparative_benchmark.engine.details import call_function
from comparative_benchmark.engine.messages import Prepared
from comparative_benchmark.engine.session import InProcessSession, Session, SessionEnded
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.maintenance.onboarding import judging
from comparative_benchmark.maintenance.onboarding.findings import Finding, State
from comparative_benchmark.maintenance.onboarding.judging import Array
from openxla.benchmark.artifacts import arrays
from openxla.benchmark.def_types import BenchmarkCase

# Another seed must change the outputs by more than this share of their scale.
_LEAST_CHANGE = 1e-3
RUNS = ("types", "repeatable", "seed", "signal", "memory")


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
        found = [self._runs_elsewhere(case)]
        try:
            with self._session("first") as session:
                first = self._prepare(session, case)
                self.truth = [np.array(v) for v in arrays.load_all(first / "truth", "output")]
                found.append(self._types(session, case, first))
                found.append(self._signal(self.truth))
                found.append(self._seed(session, case, first))
                found.append(self._memory(session, case, first))
            with self._session("second") as session:
                found.append(self._repeatable(first, self._prepare(session, case)))
        except SessionEnded as ended:
            found += self._not_run(ended, {finding.check for finding in found})
        return found

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
        try:
            done = subprocess.run(
                command,
                cwd=directory,
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                timeout=self._settings.limits.deadline_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return self._finding(
                "runs elsewhere",
                "failed",
                f"not finished after {self._settings.limits.deadline_s:g} s",
                fix,
            )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            detail = f"exit code {done.returncode}: {last}"
            return self._finding("runs elsewhere", "failed", detail, fix)
        if "output_0" not in done.stdout:
            return self._finding("runs elsewhere", "failed", "it printed no output_0", fix)
        return self._finding("runs elsewhere", "ok", done.stdout.splitlines()[0])

    def _types(
        self, session: Session | InProcessSession, case: BenchmarkCase, prepared: Path
    ) -> Finding:
        folders = [prepared, *(self._prepare(session, other) for other in self._cases[1:])]
        problems = []
        for item, folder in zip(self._cases, folders, strict=True):
            inputs = judging.specs(folder / "inputs", "input")
            outputs = judging.specs(folder / "reference", "output")
            problems += judging.other_than_declared(item, inputs, outputs)
        if problems:
            fix = "compute in the model's own data type throughout, and declare what it returns"
            return self._finding("types", "failed", "; ".join(problems), fix)
        names = ", ".join(str(item.data_type) for item in self._cases)
        return self._finding("types", "ok", f"as declared, in {names}")

    def _signal(self, truth: Sequence[Array]) -> Finding:
        fix = (
            "scale the seeded tensors (TensorInit.stddev) so that activations stay of order one "
            "up to the last layer"
        )
        for index, values in enumerate(truth):
            wide = np.asarray(values, np.float64)
            if not np.isfinite(wide).all():
                return self._finding("signal", "failed", f"output {index} is not finite", fix)
            scale, spread = float(np.sqrt(np.mean(wide * wide))), float(wide.std())
            if scale == 0 or spread <= MIN_RELATIVE_SPREAD * scale:
                detail = f"output {index} is constant, so any answer would pass"
                return self._finding("signal", "failed", detail, fix)
        spreads = ", ".join(f"{float(np.asarray(v, np.float64).std()):.3g}" for v in truth)
        return self._finding("signal", "ok", f"standard deviation {spreads}")

    def _seed(
        self, session: Session | InProcessSession, case: BenchmarkCase, first: Path
    ) -> Finding:
        if case.model.model_impl.architecture is None:
            detail = "it has no architecture, so it has no seeded checkpoint"
            return self._finding("seed", "not_applicable", detail)
        seed = case.model.model_parameters.get("seed", 0)
        other = self._prepare(session, case, seed=(seed if isinstance(seed, int) else 0) + 1)
        change = max(
            judging.relative(values, truth)
            for values, truth in zip(
                arrays.load_all(other / "truth", "output"),
                arrays.load_all(first / "truth", "output"),
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
                arrays.numbered(first / kind, stem),
                arrays.numbered(second / kind, stem),
                strict=True,
            )
            for ours, theirs in pairs:
                if ours.read_bytes() != theirs.read_bytes():
                    fix = "use no random numbers, times or set orders that the seed does not fix"
                    detail = f"{kind}/{ours.name} differs in a second process"
                    return self._finding("repeatable", "failed", detail, fix)
        return self._finding("repeatable", "ok", "the same bytes in a second process")

    def _memory(
        self, session: Session | InProcessSession, case: BenchmarkCase, first: Path
    ) -> Finding:
        arguments = {
            "module_path": case.model.model_impl.module_path,
            "parameters": dict(case.model.model_parameters),
            "inputs": [str(path) for path in arrays.numbered(first / "inputs", "input")],
        }
        probe = "comparative_benchmark.maintenance.onboarding.probes:memory"
        seen = call_function(session, probe, arguments, _MemoryProbe)
        held, model_bytes = seen.held_bytes, seen.model_bytes
        growth = held[-1] - held[0]
        fix = "keep no model, weight or output in a module, a cache or a hook"
        if seen.alive:
            return self._finding(
                "memory",
                "failed",
                "the model is still alive after its last reference was dropped",
                fix,
            )
        if growth > model_bytes * (len(held) - 1) / 2:
            detail = f"{len(held) - 1} more models leave {growth} more bytes allocated"
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
            self._finding(first, "failed", detail, "make create_model and forward work"),
            *(self._finding(check, "not_run", "the model did not run") for check in others),
        ]

    def _finding(self, check: str, state: State, detail: str, fix: str | None = None) -> Finding:
        return Finding(check=check, framework=self._framework, state=state, detail=detail, fix=fix)
