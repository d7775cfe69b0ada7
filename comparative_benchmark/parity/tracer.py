"""Runs implementations in workers, layer by layer, and compares them pair by pair."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from comparative_benchmark.backend_api import BackendInfo, backends
from comparative_benchmark.harness.in_process import InProcessSession
from comparative_benchmark.harness.session import Session, SessionEnded
from comparative_benchmark.harness.settings import RunSettings
from comparative_benchmark.harness.trial import Status
from comparative_benchmark.parity.drift import Drift, Trace, compare
from comparative_benchmark.parity.grid import Row
from openxla.benchmark.artifacts import arrays
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts
from openxla.benchmark.def_types import BenchmarkCase, ModelFrameworkType


class Tracer:
    """Runs implementations in workers and keeps their traces while it is open."""

    def __init__(self, settings: RunSettings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._sessions = ExitStack()
        self._session: Session | InProcessSession | None = None
        self._serves: BackendInfo | None = None

    def drifts(
        self,
        rows: Iterable[tuple[Row, Sequence[ModelFrameworkType]]],
        artifacts: Mapping[str, WorkloadArtifacts | None],
    ) -> list[Drift]:
        """Compares implementations of workloads.

        Args:
          rows: each with the frameworks whose implementations are in question.
          artifacts: of the workloads, by digest.
        """
        found = []
        with tempfile.TemporaryDirectory(prefix="cbs-drift-") as folder, self._sessions:
            for number, (row, suspects) in enumerate(rows):
                directory = Path(folder) / str(number)
                found += self._of_row(row, suspects, artifacts.get(row.workload.digest), directory)
                shutil.rmtree(directory, ignore_errors=True)
        return found

    def _of_row(
        self,
        row: Row,
        suspects: Sequence[ModelFrameworkType],
        artifacts: WorkloadArtifacts | None,
        directory: Path,
    ) -> list[Drift]:
        cases = {**row.others, **row.cases}
        pairs = [(_reference(cases, suspect, artifacts), suspect) for suspect in suspects]
        traces: dict[ModelFrameworkType, Trace | str] = {}
        found = []
        for reference, suspect in dict.fromkeys(pairs):
            names = (reference.value if reference else "none", suspect.value)
            if reference is None or artifacts is None:
                problem = "no other implementation" if artifacts else "there is no truth"
                found.append(_not_compared(row, names, problem))
                continue
            for framework in (reference, suspect):
                if framework not in traces:
                    self._say(f"layers of {row.label} in {framework.value}")
                    traces[framework] = self._trace(
                        cases[framework], artifacts, directory / framework.value
                    )
            ours, theirs = traces[suspect], traces[reference]
            problems = [trace for trace in (theirs, ours) if isinstance(trace, str)]
            if isinstance(ours, str) or isinstance(theirs, str):
                found.append(_not_compared(row, names, "; ".join(problems)))
            else:
                found.append(compare(row.label, names, theirs, ours))
        return found

    def _trace(
        self, case: BenchmarkCase, artifacts: WorkloadArtifacts, directory: Path
    ) -> Trace | str:
        """Returns the trace of an implementation, or why there is none."""
        implementation = case.model.model_impl
        framework = implementation.framework_type
        backend = next(
            (
                info
                for info in backends().values()
                if info.reference and framework in info.modules
                if not info.missing_modules(framework)
            ),
            None,
        )
        if backend is None:
            return f"{framework.value} is not installed"
        directory.mkdir(parents=True)
        try:
            answer = self._session_for(backend).call(
                "call",
                function="comparative_benchmark.intermediates:save",
                arguments={
                    "framework": framework.value,
                    "module_path": implementation.module_path,
                    "parameters": dict(case.model.model_parameters),
                    "inputs": [str(path) for path in artifacts.inputs],
                    "directory": str(directory),
                },
            )
        except SessionEnded as ended:
            if ended.status is not Status.UNSUPPORTED:
                self._drop_session()
            return f"{framework.value}: {ended.status.value} in {ended.phase}: {ended.reason}"
        names = answer["value"]["layers"]
        return Trace(
            layers=dict(zip(names, arrays.numbered(directory, "layer"), strict=True)),
            outputs=arrays.numbered(directory, "output"),
        )

    def _session_for(self, backend: BackendInfo) -> Session | InProcessSession:
        if self._session is None or self._serves != backend:
            self._drop_session()
            work_dir = Path(self._sessions.enter_context(tempfile.TemporaryDirectory()))
            self._session = self._settings.open_session(
                backend,
                None,
                work_dir=work_dir,
                cache_dir=work_dir,
                log_file=self._settings.log_dir / f"drift-{backend.name}.log",
            )
            self._sessions.push(self._session)
            self._serves = backend
        self._session.renew()
        return self._session

    def _drop_session(self) -> None:
        self._session = self._serves = None
        self._sessions.close()


def _reference(
    cases: Mapping[ModelFrameworkType, BenchmarkCase],
    suspect: ModelFrameworkType,
    artifacts: WorkloadArtifacts | None,
) -> ModelFrameworkType | None:
    """Returns who to compare with: who made the truth, or else another implementation."""
    producer = artifacts.manifest["producer"]["module_path"] if artifacts else None
    others = [framework for framework in cases if framework is not suspect]
    made = [f for f in others if cases[f].model.model_impl.module_path == producer]
    return next(iter((*made, *others)), None)


def _not_compared(row: Row, names: tuple[str, str], problem: str) -> Drift:
    return Drift(label=row.label, reference=names[0], candidate=names[1], problem=problem)
