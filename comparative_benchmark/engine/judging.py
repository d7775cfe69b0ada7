"""Verifies the outputs of a trial, for all kinds of models."""

import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from comparative_benchmark.analysis.verification.error_limits import MIN_SQNR, groups_of
from comparative_benchmark.analysis.verification.generation_verification import (
    verify_forced_run,
    verify_free_run,
    verify_same_run,
)
from comparative_benchmark.analysis.verification.verification import (
    Verification,
    limits_of,
    open_array,
    sum_length,
    verify,
)
from comparative_benchmark.backends.api import BackendInfo, judges_of, origin_of
from comparative_benchmark.engine.settings import Environment
from comparative_benchmark.engine.trial import Trial
from openxla.benchmark.artifacts.workload_store import (
    ArtifactError,
    Due,
    TruthSource,
    WorkloadArtifacts,
)
from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.models.model_interfaces import TOKENS
from openxla.benchmark.models.preprocessing import element_type_of
from openxla.benchmark.training import models, optimizer_of
from openxla.benchmark.training.architecture import trained
from openxla.benchmark.workloads import generated_tokens, training_of

# A change must exceed the allowed error by this factor.
_FACTOR = 10.0
_CHUNK = 1 << 20


@attrs.frozen(kw_only=True)
class Changes:
    """Outputs that changed between the tried inputs.

    Attributes:
      changed: for each output, whether the best input changed it by more than the allowed error.
      constant: for each output, whether all inputs gave the same bits.
      floating: for each output, whether it holds floating-point numbers.
    """

    changed: tuple[bool, ...]
    constant: tuple[bool, ...]
    floating: tuple[bool, ...]

    @property
    def complete(self) -> bool:
        """Whether no further inputs need to be tried."""
        return all(self.changed)

    @property
    def count(self) -> int:
        """Number of changed outputs."""
        return sum(self.changed)

    def after(self, other: "Changes | None") -> "Changes":
        """Returns these changes, with `constant` updated from another input."""
        if other is None:
            return self
        constant = tuple(map(operator.and_, self.constant, other.constant))
        return attrs.evolve(self, constant=constant)

    @property
    def remark(self) -> str | None:
        """Names the outputs that are verified on one input only; None without such outputs."""
        unchanged = [str(index) for index in self._unchanged]
        if not unchanged:
            return None
        many = "s" * (len(unchanged) > 1)
        return f"no input tried changes output{many} {', '.join(unchanged)} beyond rounding"

    @property
    def not_ranked(self) -> str | None:
        """Why programs of the model are excluded from rankings; None if they may be ranked."""
        if self.count and not any(self.floating[index] for index in self._unchanged):
            return None
        return self.remark or "none of the inputs tried changes any output"

    @property
    def _unchanged(self) -> list[int]:
        every = enumerate(zip(self.changed, self.constant, strict=True))
        return [index for index, (changed, constant) in every if not (changed or constant)]


def changes(first: Due, second: Due, parameters: Mapping[str, float]) -> Changes:
    """Returns the outputs that a second input changes.

    Args:
      first: the first input with its truth and reference.
      second: the second input with its truth and reference.
      parameters: verification parameters, see `analysis.verification.verification.verify`.
    """
    pairs = [
        (open_array(one), open_array(other), open_array(reference))
        for one, other, reference in zip(first.truth, second.truth, first.reference, strict=True)
    ]
    return Changes(
        changed=tuple(_differs(*pair, parameters) for pair in pairs),
        constant=tuple(one.tobytes() == other.tobytes() for one, other, _ in pairs),
        floating=tuple(_is_floating(reference) for _, _, reference in pairs),
    )


def _is_floating(values: npt.NDArray[Any]) -> bool:
    return values.dtype.kind not in "iub"


def _differs(
    one: npt.NDArray[Any],
    other: npt.NDArray[Any],
    reference: npt.NDArray[Any],
    parameters: Mapping[str, float],
) -> bool:
    """Returns whether the root mean square difference of two truths exceeds the rounding error."""
    if one.shape != other.shape:
        return True
    if not _is_floating(reference):
        return bool((one != other).any())
    left, right = (value.reshape(-1) for value in (one, other))
    squared = 0.0
    for start in range(0, left.size, _CHUNK):
        a, b = (_wide(value[start : start + _CHUNK]) for value in (left, right))
        finite = np.isfinite(a) & np.isfinite(b)
        # Compare infinities and NaN exactly.
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return True
        difference = a[finite] - b[finite]
        squared += float(np.dot(difference, difference))
    if squared == 0:
        return False
    allowed = _allowed(one, reference, parameters)
    if math.sqrt(squared / left.size) > _FACTOR * allowed:
        return True
    # Values next to a mask of -1e9 may change although the output as a whole hardly does.
    if reference.dtype.kind == "c":
        return False
    groups = groups_of(other, one, reference, element_type_of(reference.dtype), parameters)
    return any(group.error > _FACTOR * group.limit for group in groups)


def _allowed(
    truth: npt.NDArray[Any], reference: npt.NDArray[Any], parameters: Mapping[str, float]
) -> float:
    """Returns the allowed root mean square error; 0 if nothing can be verified."""
    finite = np.isfinite(truth) & np.isfinite(reference)
    if not finite.all():
        truth, reference = truth[finite], reference[finite]
    if not truth.size:
        return 0.0
    limits = limits_of(truth, reference, parameters)
    return 0.0 if isinstance(limits, str) else limits.rmse


def _wide(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if values.dtype.kind == "c":
        return values.astype(np.complex128).view(np.float64)
    return values.astype(np.float64)


# Top-level packages of this distribution.
_OURS = ("openxla", __name__.partition(".")[0])


@attrs.frozen(kw_only=True)
class Truth:
    """How a worker computes truth and reference.

    Attributes:
      reference: function as `module:function`, see `backends.api.Reference`.
      backend: backend whose environment variables the worker gets.
      environment: environment of the worker; None for this one.
      source: the source that results record.
    """

    reference: str
    backend: BackendInfo
    environment: Environment | None
    source: TruthSource


def truth_of(trial: Trial) -> Truth:
    """Returns how to compute the truth of a trial; prefers this environment.

    Raises:
      ArtifactError: no backend can compute it, or its packages are not installed.
    """
    implementation, own = trial.case.model.model_impl, trial.competitor.backend
    framework = implementation.framework_type
    if implementation.reference is not None:
        return Truth(
            reference=implementation.reference,
            backend=own,
            environment=None,
            source=_declared(implementation.reference),
        )
    judges = sorted(judges_of(framework), key=lambda info: info.name != own.name)
    environment = trial.competitor.environment
    for where in (None, environment) if environment else (None,):
        for info in judges:
            if not _missing(info, framework, where):
                return Truth(
                    reference=str(info.reference),
                    backend=info,
                    environment=where,
                    source=_source(info),
                )
    if not judges:
        raise ArtifactError(f"no backend computes the truth for {framework.value} models")
    absence = judges[0].absence(judges[0].missing_modules(framework))
    raise ArtifactError(
        f"computing the truth for a {framework.value} model requires "
        f"{', '.join(absence.modules)}: run {absence.commands}"
    )


def may_judge(artifacts: WorkloadArtifacts, trial: Trial) -> bool:
    """Returns whether a stored truth could still be computed for a trial today.

    False if its source is unknown: in older versions plug-ins could judge themselves, and user
    models shared a process. False if a model of another package generated it for one of ours.
    """
    source, implementation = artifacts.truth_source, trial.case.model.model_impl
    if source is None:
        return False
    if _is_ours(implementation.module_path) and not _is_ours(artifacts.made_by):
        return False
    if source.built_in:
        return True
    if implementation.reference is not None:
        return source == _declared(implementation.reference)
    return source in map(_source, judges_of(implementation.framework_type))


def why_plugin(source: TruthSource) -> str | None:
    """Returns why a truth is weaker evidence than a built-in one; None if it is built-in."""
    if source.built_in or not source.backend:
        return None
    return (
        f"the truth was computed by the plug-in {source.backend} from {source.distribution}, not "
        "by a built-in backend"
    )


def why_not_ranked(backend: BackendInfo, source: TruthSource | None) -> str | None:
    """Returns why a backend is not ranked when judged by a truth; None if it is."""
    if source is None or source.built_in:
        return None
    origin = origin_of(backend)
    packages = {backend.implementation.partition(":")[0].partition(".")[0]}
    if origin is not None:
        packages.add(origin.distribution)
    if backend.name != source.backend and source.distribution not in packages:
        return None
    return f"the truth was computed by {source.distribution}, the backend's own package"


def is_foreign(trial: Trial) -> bool:
    """Returns whether the truth, or the model that generates it, comes from another package."""
    implementation = trial.case.model.model_impl
    return implementation.reference is not None or not _is_ours(implementation.module_path)


def _missing(
    info: BackendInfo, framework: ModelFrameworkType, where: Environment | None
) -> Collection[str]:
    if where is None:
        return info.missing_modules(framework)
    return where.missing.intersection(info.needed_modules(framework))


def _source(info: BackendInfo) -> TruthSource:
    origin = origin_of(info)
    return TruthSource(
        backend=info.name,
        distribution=origin.distribution if origin else "unknown",
        built_in=origin is not None and origin.built_in,
    )


def _declared(reference: str) -> TruthSource:
    package = reference.partition(":")[0].partition(".")[0]
    return TruthSource(backend="", distribution=package, built_in=False)


def _is_ours(module_path: str | None) -> bool:
    return (module_path or "").partition(".")[0] in _OURS


# Runs the model once on input files and returns its output files; the string names the run.
RunWith = Callable[[Sequence[Path], str], Sequence[Path]]


class Judge:
    """Verifies the outputs of a trial's runs on one input.

    Args:
      trial: the trial.
      due: the input, truth and reference.
      second: whether this is the second input.

    Attributes:
      due: the input, truth and reference.
      generates: whether the model continues prompts, and is verified step by step.
      trains: whether an iteration is a training step.
    """

    def __init__(self, trial: Trial, due: Due, *, second: bool = False) -> None:
        self.generates = generated_tokens(trial.case) is not None
        self.trains = training_of(trial.case) is not None
        self.due = due
        self._due = (due.truth, due.reference, trial.verify_parameters)
        self._parameters = trial.case.model.model_parameters
        # Only the framework knows the names of such a model's weights.
        self._is_own = trial.case.model.model_impl.architecture is None
        self._data_type = trial.workload.data_type
        shapes = [[open_array(path).shape for path in paths] for paths in (due.inputs, due.truth)]
        self._longest_sum = sum_length(*shapes)
        noise = None if MIN_SQNR in trial.case.verify_parameters else trial.noise
        self._least_db = [] if noise is None else noise.least_db(second=second)

    def verify(self, outputs: Sequence[Path]) -> Verification:
        """Verifies the outputs of a run on the input.

        If the model generates, the steps after the verdict's `divergences` remain to be verified:
        see `verify_rest`.
        """
        if self.generates:
            return verify_free_run(outputs, *self._due, data_type=self._data_type)
        return verify(
            outputs,
            *self._due,
            neighbours=self.due.neighbours_by_output,
            longest_sum=self._longest_sum,
            least_db=self._least_db,
        )

    def update_problem(
        self, after: Mapping[str, npt.NDArray[Any]]
    ) -> tuple[float | None, str | None]:
        """Verifies the weights of a model after a single optimizer update.

        Args:
          after: the first elements of each weight.

        Returns:
          The error as a fraction of the limit, and the problem or None.
        """
        missing = set() if self._is_own else set(trained(self._parameters)) ^ set(after)
        if not after:
            return None, "a single update changed no weights"
        if missing:
            return None, f"missing or extra weights after an update: {', '.join(sorted(missing))}"
        error, name = models.worst_update_error(optimizer_of(self._parameters), after)
        if error <= 1:
            return error, None
        return error, (
            f"{name} is wrong after {models.STEPS_BEFORE} steps and a single update: its error is "
            f"{error:.3g} times the limit"
        )

    def verify_rest(
        self, outputs: Sequence[Path], verdict: Verification, run_with: RunWith
    ) -> Verification:
        """Verifies the rest of a run that diverged from the truth's tokens at a near-tie.

        Args:
          outputs: outputs of the run.
          verdict: result of `verify`; returned unchanged if nothing remains to be verified.
          run_with: runs the model on the input and the tokens to feed.
        """
        if not verdict.passed or not verdict.divergences:
            return verdict
        inputs, truth_tokens = self.due.inputs, self.due.truth[TOKENS]
        along_truth = run_with([*inputs, truth_tokens], "fed-with-the-truth")
        fed = verify_forced_run(along_truth, *self._due, data_type=self._data_type)
        if not fed.passed:
            return attrs.evolve(fed, reason=f"when fed the truth's tokens: {fed.reason}")
        along_own = run_with([*inputs, outputs[TOKENS]], "fed-with-its-own")
        same = verify_same_run(outputs, along_own, *self._due, data_type=self._data_type)
        if not same.passed:
            return attrs.evolve(same, reason=f"when fed its own tokens: {same.reason}")
        # Report where the timed run diverged from the truth's tokens.
        return attrs.evolve(fed, divergences=verdict.divergences)
