"""Records the layers of implementations in workers, and compares them pairwise."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.backends.api import judges_of
from comparative_benchmark.backends.intermediates import RECORDERS
from comparative_benchmark.engine.details import call_function
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.session_pool import SessionPool
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.studies.parity.drift import Drift, Trace, compare
from comparative_benchmark.studies.parity.grid import Row
from openxla.benchmark.artifacts import arrays
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts
from openxla.benchmark.def_types import BenchmarkCase, ModelFrameworkType
from openxla.benchmark.temporary import temporary_folder


@attrs.frozen
class _Layers:
    """See `intermediates.save`."""

    layers: list[str]


class Tracer:
    """Runs implementations in workers; keeps the workers for one call of `drifts`."""

    def __init__(self, settings: RunSettings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._pool: SessionPool

    def drifts(
        self,
        rows: Iterable[tuple[Row, Sequence[ModelFrameworkType]]],
        artifacts: Mapping[str, WorkloadArtifacts | None],
    ) -> list[Drift]:
        """Compares implementations of workloads.

        Args:
          rows: rows with the frameworks whose implementations are suspect.
          artifacts: artifacts of the workloads, by digest.
        """
        pairs = [
            _Pair.of(row, suspect, artifacts) for row, suspects in rows for suspect in suspects
        ]
        pairs = list(dict.fromkeys(pairs))
        with (
            temporary_folder("drift") as folder,
            SessionPool(folder=Path(folder), log_dir=self._settings.log_dir) as self._pool,
        ):
            traces = self._traces(pairs, artifacts, Path(folder))
            return [_compared(pair, traces) for pair in pairs]

    def _traces(
        self,
        pairs: Sequence["_Pair"],
        artifacts: Mapping[str, WorkloadArtifacts | None],
        folder: Path,
    ) -> dict[BenchmarkCase, Trace | str]:
        """Traces each implementation once, ordered by framework so that each needs one worker.

        Returns:
          The trace of each case, or the reason if there is none.
        """
        digests = {case: pair.row.workload.digest for pair in pairs for case in pair.cases}
        cases = sorted(digests, key=lambda case: case.model.model_impl.framework_type.value)
        traces: dict[BenchmarkCase, Trace | str] = {}
        for number, case in enumerate(cases):
            found = artifacts.get(digests[case])
            if found is None:
                traces[case] = "no truth, and therefore no input, is available"
                continue
            self._say(f"recording the layers of {case.model.name}")
            traces[case] = self._trace(case, found, folder / str(number))
        return traces

    def _trace(
        self, case: BenchmarkCase, artifacts: WorkloadArtifacts, directory: Path
    ) -> Trace | str:
        """Returns the trace of an implementation, or the reason if there is none."""
        implementation = case.model.model_impl
        framework = implementation.framework_type
        if framework.value not in RECORDERS:
            return f"layers of {framework.value} models cannot be recorded"
        backend = next(
            (info for info in judges_of(framework) if not info.missing_modules(framework)), None
        )
        if backend is None:
            return f"{framework.value} is not installed"
        directory.mkdir(parents=True)
        name = f"drift-{backend.name}{case.model.own_process_suffix}"
        try:
            names = call_function(
                self._pool.get(name, self._settings, backend),
                "comparative_benchmark.backends.intermediates:save",
                {
                    "framework": framework.value,
                    "module_path": implementation.module_path,
                    "parameters": dict(case.model.model_parameters),
                    "inputs": [str(path) for path in artifacts.inputs],
                    "directory": str(directory),
                },
                _Layers,
            ).layers
        except SessionEnded as ended:
            return f"{framework.value}: {ended.status.value} in {ended.phase}: {ended.reason}"
        return Trace(
            layers=dict(zip(names, arrays.numbered(directory, "layer"), strict=True)),
            outputs=arrays.numbered(directory, "output"),
        )


@attrs.frozen(kw_only=True)
class _Pair:
    """Two implementations of a row; the reference is None if there is only one."""

    row: Row
    reference: BenchmarkCase | None
    candidate: BenchmarkCase

    @classmethod
    def of(
        cls,
        row: Row,
        suspect: ModelFrameworkType,
        artifacts: Mapping[str, WorkloadArtifacts | None],
    ) -> "_Pair":
        """Pairs a suspect with the producer of the truth, or else with another implementation."""
        cases = {**row.others, **row.cases}
        others = [case for framework, case in cases.items() if framework is not suspect]
        found = artifacts.get(row.workload.digest)
        producer = found.manifest.producer.module_path if found else None
        made = [case for case in others if case.model.model_impl.module_path == producer]
        seen = [case for case in others if _framework(case) in RECORDERS]
        return cls(
            row=row,
            reference=next(iter((*made, *seen, *others)), None),
            candidate=cases[suspect],
        )

    @property
    def cases(self) -> list[BenchmarkCase]:
        """The cases to trace; none if there is no reference."""
        return [] if self.reference is None else [self.reference, self.candidate]


def _compared(pair: _Pair, traces: Mapping[BenchmarkCase, Trace | str]) -> Drift:
    candidate = _framework(pair.candidate)
    if pair.reference is None:
        problem = "no other implementation"
        return Drift(label=pair.row.label, reference="none", candidate=candidate, problem=problem)
    names = (_framework(pair.reference), candidate)
    theirs, ours = traces[pair.reference], traces[pair.candidate]
    if isinstance(theirs, str) or isinstance(ours, str):
        problems = [trace for trace in (theirs, ours) if isinstance(trace, str)]
        return Drift(
            label=pair.row.label,
            reference=names[0],
            candidate=names[1],
            problem="; ".join(dict.fromkeys(problems)),
        )
    return compare(pair.row.label, names, theirs, ours)


def _framework(case: BenchmarkCase) -> str:
    return case.model.model_impl.framework_type.value
