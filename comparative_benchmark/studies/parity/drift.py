"""Finds the first layer in which two implementations of a model differ.

Each implementation runs in a worker in float64 and records the outputs of its layers, by the
checkpoint's names (`intermediates`). Correct layers agree to about twelve digits. After the first
error, layers differ because they depend on it. So the error is in the first layer that differs, in
execution order, or between it and the last one that agrees.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from comparative_benchmark.backends.api import judges_of
from comparative_benchmark.backends.intermediates import RECORDERS
from comparative_benchmark.engine.session import SessionEnded, call_function
from comparative_benchmark.engine.session_pool import SessionPool
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.studies.parity.grid import Row
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts
from openxla.benchmark.def_types import BenchmarkCase, ModelFrameworkType
from openxla.benchmark.files import temporary_folder

# Largest difference between equivalent layers, relative to the root mean square; the same limit as
# for the agreement of whole models.
TOLERANCE = 1e-9

Array = npt.NDArray[Any]


@attrs.frozen(kw_only=True)
class Trace:
    """Outputs of the layers of one implementation, in execution order, and of the model."""

    layers: Mapping[str, Path]
    outputs: Sequence[Path]


@attrs.frozen(kw_only=True)
class Drift:
    """Comparison of two implementations of a workload; plain JSON values.

    Attributes:
      label: label of the row.
      reference: framework of the reference implementation, which produced the truth if one of the
        two did.
      candidate: framework of the other implementation.
      output_error: largest relative difference of the outputs; None if not comparable.
      compared: number of layers in both.
      not_comparable: number of these that differ in shape.
      first: the first layer that differs; None if all layers or the outputs agree.
      first_error: its relative difference.
      last_good: the last layer before it that agrees.
      problem: why they were not compared.
    """

    label: str
    reference: str
    candidate: str
    output_error: float | None = None
    compared: int = 0
    not_comparable: int = 0
    first: str | None = None
    first_error: float | None = None
    last_good: str | None = None
    problem: str | None = None

    def __str__(self) -> str:
        subject = f"{self.label}: {self.reference} and {self.candidate}"
        if self.problem is not None:
            return f"{self.label}: {self.candidate} was not compared: {self.problem}"
        if self.output_error is None or self.output_error > TOLERANCE:
            off = "cannot be compared" if self.output_error is None else f"{self.output_error:.1e}"
            if self.first is None:
                return (
                    f"{subject} have different outputs ({off}), but all comparable layers "
                    f"({self.compared - self.not_comparable}) agree; check the rest of the model"
                )
            after = f"after {self.last_good}" if self.last_good else "from the start"
            return (
                f"{subject} drift apart in float64 {after}: the first layer that differs is "
                f"{self.first} ({self.first_error:.1e}; outputs {off})"
            )
        return (
            f"{subject} agree in float64 ({self.output_error:.1e}, {self.compared} layers): if an "
            "output is wrong, the compiler or the data type is the cause"
        )


def compare(label: str, names: tuple[str, str], reference: Trace, candidate: Trace) -> Drift:
    """Compares two traces layer by layer, in the candidate's order.

    A differing layer is reported only if the outputs also differ, because some layers have
    different meanings in two frameworks without affecting the outputs.
    """
    outputs = [
        difference(
            array_files.load(theirs, memory_map=True), array_files.load(ours, memory_map=True)
        )
        for ours, theirs in zip(candidate.outputs, reference.outputs, strict=False)
    ]
    known = [error for error in outputs if error is not None]
    comparable = len(known) == len(candidate.outputs) == len(reference.outputs) and known
    output_error = max(known) if comparable else None
    common = [name for name in candidate.layers if name in reference.layers]
    not_comparable = 0
    first = last_good = first_error = None
    for name in common:
        error = difference(
            array_files.load(reference.layers[name], memory_map=True),
            array_files.load(candidate.layers[name], memory_map=True),
        )
        if error is None:
            not_comparable += 1
        elif error <= TOLERANCE:
            last_good = name
        elif output_error is None or output_error > TOLERANCE:
            first, first_error = name, error
            break
    return Drift(
        label=label,
        reference=names[0],
        candidate=names[1],
        output_error=output_error,
        compared=len(common),
        not_comparable=not_comparable,
        first=first,
        first_error=first_error,
        last_good=last_good,
    )


def difference(reference: Array, candidate: Array) -> float | None:
    """Returns the largest difference over the reference's root mean square.

    Returns None if the shapes are incompatible. Channels may be last in one of two images, and
    matrices may be flattened.
    """
    forms = [candidate] if candidate.shape == reference.shape else []
    if candidate.ndim == 4:
        forms += [candidate.transpose(0, 3, 1, 2), candidate.transpose(0, 2, 3, 1)]
    if not forms and candidate.size == reference.size:
        forms.append(candidate.reshape(reference.shape))
    errors = [
        _largest(reference, form) for form in forms if form.shape == reference.shape and form.size
    ]
    return min(errors, default=None)


def _largest(reference: Array, candidate: Array) -> float:
    if reference.dtype.kind == "c":
        reference, candidate = (np.stack([x.real, x.imag]) for x in (reference, candidate))
    finite = np.isfinite(reference)
    # Infinities and NaN may be meant, e.g. in masked logits.
    if not np.array_equal(reference[~finite], candidate[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    reference, candidate = reference[finite], candidate[finite]
    with np.errstate(over="ignore", invalid="ignore"):
        scale = float(np.sqrt(np.mean(np.square(reference, dtype=np.float64))))
        off = np.abs(candidate.astype(np.float64) - reference.astype(np.float64))
        largest = float(off.max())
    if np.isnan(largest):
        return float("inf")
    return largest / scale if scale else (0.0 if largest == 0 else float("inf"))


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
          The trace of each case, or the reason why it is missing.
        """
        digests = {case: pair.row.workload.digest for pair in pairs for case in pair.cases}
        cases = sorted(digests, key=lambda case: case.model.model_impl.framework_type.value)
        traces: dict[BenchmarkCase, Trace | str] = {}
        for number, case in enumerate(cases):
            stored = artifacts.get(digests[case])
            if stored is None:
                traces[case] = "the truth and the inputs are not available"
                continue
            self._say(f"recording layers in {case.model.name}")
            traces[case] = self._trace(case, stored, folder / str(number))
        return traces

    def _trace(
        self, case: BenchmarkCase, artifacts: WorkloadArtifacts, directory: Path
    ) -> Trace | str:
        """Returns the trace of an implementation, or the reason why it is missing."""
        implementation = case.model.model_impl
        framework = implementation.framework_type
        if framework.value not in RECORDERS:
            return f"layers in {framework.value} models cannot be recorded"
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
            layers=dict(zip(names, array_files.numbered(directory, "layer"), strict=True)),
            outputs=array_files.numbered(directory, "output"),
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
        stored = artifacts.get(row.workload.digest)
        producer = stored.made_by if stored else None
        made = [case for case in others if case.model.model_impl.module_path == producer]
        seen = [case for case in others if _framework(case) in RECORDERS]
        return cls(
            row=row, reference=next(iter((*made, *seen, *others)), None), candidate=cases[suspect]
        )

    @property
    def cases(self) -> list[BenchmarkCase]:
        """The cases to trace; empty without a reference."""
        return [] if self.reference is None else [self.reference, self.candidate]


def _compared(pair: _Pair, traces: Mapping[BenchmarkCase, Trace | str]) -> Drift:
    candidate = _framework(pair.candidate)
    if pair.reference is None:
        problem = "no other implementation exists"
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
