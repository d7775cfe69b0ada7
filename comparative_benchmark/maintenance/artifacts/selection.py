"""Selects models by name, and prepares the data that verifies their exports."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from comparative_benchmark.analysis.verification import error_limits
from comparative_benchmark.analysis.verification.generation_verification import (
    verify_forced_run,
    verify_free_run,
)
from comparative_benchmark.analysis.verification.verification import (
    Verification,
    failed,
    open_array,
    sum_length,
    verify,
)
from comparative_benchmark.backends.api import BackendInfo, judges_of
from comparative_benchmark.engine.preparation import Preparation
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Competitor, Trial
from comparative_benchmark.maintenance.artifacts import kinds
from comparative_benchmark.maintenance.artifacts.kinds import Kind
from comparative_benchmark.maintenance.artifacts.outcomes import Subject
from comparative_benchmark.results.record import Status
from openxla.benchmark import synonyms, testdata
from openxla.benchmark.artifacts.manifests import Manifest
from openxla.benchmark.artifacts.workload_store import Due
from openxla.benchmark.comparative_suite import families
from openxla.benchmark.comparative_suite.catalog import Expression
from openxla.benchmark.def_types import BenchmarkCase, DefinitionError, Model, ModelFrameworkType
from openxla.benchmark.files import write_atomically
from openxla.benchmark.models.model_interfaces import TOKENS
from openxla.benchmark.workloads import generated_tokens, workload_of


def entry(model: Model, manifest: Manifest) -> dict[str, Any]:
    """Returns the export record of a model according to a manifest.

    Any failure counts, even one unrelated to the model, such as a missing package: only verified
    exports are recorded.
    """
    module_path, data_type, generates = families.key_of_exports(
        model.model_impl, model.model_parameters
    )
    made = {file.artifact_type for file in manifest.files}
    reasons = {failure.artifact_type: failure.reason for failure in manifest.failures}
    forms = [kind.name for kind in kinds.KINDS if kind.model_type is not None]
    forms += [name for name in sorted(reasons) if name not in forms]
    return {
        "module_path": module_path,
        "data_type": data_type,
        "generates": generates,
        "types": [name for name in forms if name in made],
        "failures": {
            name: reasons[name] for name in forms if name in reasons and kinds.is_form(name)
        },
    }


def update(path: Path, new: Mapping[str, Mapping[str, Any]]) -> None:
    """Updates a file of records; types that were not tried this time keep their old records.

    The result is deterministic.
    """
    models = dict(families.recorded_exports(path))
    for name, entry in new.items():
        models[name] = _merged(models.get(name, {}), entry)
    document = {"version": families.PROVED_VERSION, "models": dict(sorted(models.items()))}
    write_atomically(path, (json.dumps(document, indent=2, sort_keys=True) + "\n").encode())
    families.recorded_exports.cache_clear()


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    tried = {*new["types"], *new["failures"]}
    kept = [name for name in old.get("types", ()) if name not in tried]
    failures = {name: why for name, why in old.get("failures", {}).items() if name not in tried}
    return {
        **new,
        "types": sorted([*new["types"], *kept]),
        "failures": {**failures, **new["failures"]},
    }


# Computes inputs, truth and reference for a run that is given the tokens in a file.
Along = Callable[[Path], Due]


def judge(kind: Kind, subject: Subject, outputs: Sequence[Path], along: Along) -> Verification:
    """Verifies the outputs of a consumer, according to its kind.

    A program cannot be given the truth's tokens. If its tokens diverge at a near-tie, truth and
    reference are computed for its own tokens, and every step is verified against them.
    """
    artifacts = subject.artifacts
    if kind.judged_by == "itself":
        return Verification(passed=True)
    if kind.judged_by in ("inputs", "truth"):
        original = artifacts.inputs if kind.judged_by == "inputs" else artifacts.truth
        return _judge_identity(outputs, original)
    parameters = error_limits.parameters_for(
        kind.precision, subject.workload.data_type, subject.case.verify_parameters
    )
    due_outputs = (artifacts.truth, artifacts.reference, parameters)
    if generated_tokens(subject.case) is None:
        due = artifacts.first
        shapes = [[open_array(path).shape for path in paths] for paths in (due.inputs, due.truth)]
        near, longest_sum = due.neighbours_by_output, sum_length(*shapes)
        return verify(outputs, *due_outputs, neighbours=near, longest_sum=longest_sum)
    data_type = subject.workload.data_type
    verdict = verify_free_run(outputs, *due_outputs, data_type=data_type)
    if not verdict.passed or not verdict.divergences:
        return verdict
    own = along(outputs[TOKENS])
    whole = verify_forced_run(outputs, own.truth, own.reference, parameters, data_type=data_type)
    if not whole.passed:
        return attrs.evolve(whole, reason=f"checked on the program's own tokens: {whole.reason}")
    return attrs.evolve(whole, divergences=verdict.divergences)


def _judge_identity(actual: Sequence[Path], due: Sequence[Path]) -> Verification:
    if len(actual) != len(due):
        return failed(f"expected {len(due)} arrays, got {len(actual)}")
    for index, (one, other) in enumerate(zip(map(open_array, actual), map(open_array, due))):
        same = one.dtype == other.dtype and one.shape == other.shape
        if not same or np.ascontiguousarray(one).tobytes() != np.ascontiguousarray(other).tobytes():
            return failed(f"array {index} differs from the original")
    return Verification(passed=True)


def framework(name: str) -> ModelFrameworkType:
    """Returns the framework for a name, e.g. `pt` or `pytorch`.

    Raises:
      DefinitionError: it is unknown.
    """
    try:
        return ModelFrameworkType(synonyms.framework(name))
    except ValueError:
        known = "pytorch, jax, tensorflow_v2, tflite"
        raise DefinitionError(f"unknown framework {name!r}; choices are {known}") from None


def cases(
    every: Sequence[BenchmarkCase], *, name: str | None, of: ModelFrameworkType | None
) -> list[BenchmarkCase]:
    """Returns the default case of each selected model, in order.

    Args:
      every: the cases to select from.
      name: regular expression for the whole name of a model, or of its case; None for all.
      of: framework of the models; None for all.

    Raises:
      re.error: the expression is malformed.
    """
    pattern = Expression(name) if name is not None else None
    default = testdata.INPUT_DATA_MODEL_DEFAULT.name
    return [
        case
        for case in every
        if case.input_data.name == default
        and of in (None, case.model.model_impl.framework_type)
        and (
            pattern is None
            or any(
                pattern.fullmatch(text)
                for text in (case.model.name, f"models/{case.model.name}", case.name)
            )
        )
    ]


def subjects(
    cases: Sequence[BenchmarkCase],
    settings: RunSettings,
    announce: Callable[[str], None],
    *,
    reference: BackendInfo | None = None,
) -> tuple[list[Subject], dict[str, SessionEnded]]:
    """Computes or finds inputs, truth and reference of each model.

    Args:
      cases: default cases of the models.
      settings: settings of the processes.
      announce: receives progress.
      reference: the backend whose framework computes them; None for the default.

    Returns:
      The models whose exports can be verified, and why others cannot, by the name of the model.
    """
    trials, failures = [], {}
    for case in cases:
        backend = reference or _reference_of(case)
        if backend is None:
            reason = (
                "no backend can compute the truth for "
                f"{case.model.model_impl.framework_type.value} models"
            )
            failures[case.model.name] = SessionEnded(Status.FAILED, "artifacts", reason)
            continue
        competitor = Competitor(backend=backend, compiler=backend.compilers[0])
        trials.append(
            Trial(
                case=case, workload=workload_of(case), competitor=competitor, device=settings.device
            )
        )
    preparation = Preparation(settings, announce)
    preparation.run(trials)
    ready = []
    for trial in trials:
        artifacts = preparation.artifacts.get(trial.workload.digest)
        if artifacts is None:
            failures[trial.case.model.name] = preparation.failures[trial.case.name]
        else:
            ready.append(
                Subject(
                    case=trial.case,
                    workload=trial.workload,
                    artifacts=artifacts,
                    reference=trial.competitor.backend,
                )
            )
    return ready, failures


def _reference_of(case: BenchmarkCase) -> BackendInfo | None:
    """Returns the best installed backend that computes truth in the case's framework."""
    kind = case.model.model_impl.framework_type
    return min(judges_of(kind), key=lambda info: bool(info.missing_modules(kind)), default=None)
