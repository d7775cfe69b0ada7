"""Where the truth of a trial is computed: never by a plug-in if a built-in backend can do it.

A backend that computed its own truth would be right by definition, and its rivals wrong.
"""

from collections.abc import Collection

import attrs

from comparative_benchmark.backends.api import BackendInfo, judges_of, origin_of
from comparative_benchmark.runs.environments import Environment
from comparative_benchmark.runs.trial import Trial
from openxla.benchmark.artifacts.workload_store import (
    ArtifactError,
    TruthSource,
    WorkloadArtifacts,
)
from openxla.benchmark.def_types import ModelFrameworkType

# Packages of this distribution.
_OURS = ("openxla", __name__.partition(".")[0])


@attrs.frozen(kw_only=True)
class Truth:
    """How a worker computes truth and reference.

    Attributes:
      reference: `module:function`, see `backends.api.Reference`.
      backend: whose variables the worker gets.
      environment: where the worker runs; None for this one.
      source: who computes, as results record it.
    """

    reference: str
    backend: BackendInfo
    environment: Environment | None
    source: TruthSource


def truth_of(trial: Trial) -> Truth:
    """Returns how the truth of a trial is computed; in this environment if it is possible.

    Raises:
      ArtifactError: no backend computes it, or its packages are not installed.
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
        raise ArtifactError(f"no backend computes the truth of {framework.value} models")
    absence = judges[0].absence(judges[0].missing_modules(framework))
    raise ArtifactError(
        f"the truth of a {framework.value} model needs {', '.join(absence.modules)}: "
        f"run {absence.commands}"
    )


def may_judge(artifacts: WorkloadArtifacts, trial: Trial) -> bool:
    """Returns whether a stored truth is one that could be computed for a trial today.

    False if its source is unknown: plug-ins used to judge themselves, and models that were brought
    used to share a process. False if a model of another package made it for one of ours.
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
    """Returns why a truth proves less than a built-in one; None if it is built-in."""
    if source.built_in or not source.backend:
        return None
    return (
        f"no built-in backend computes the truth: the plug-in {source.backend} of "
        f"{source.distribution} did"
    )


def why_not_ranked(backend: BackendInfo, source: TruthSource | None) -> str | None:
    """Returns why a backend has no rank among those that a truth judges; None if it has one."""
    if source is None or source.built_in:
        return None
    origin = origin_of(backend)
    packages = {backend.implementation.partition(":")[0].partition(".")[0]}
    if origin is not None:
        packages.add(origin.distribution)
    if backend.name != source.backend and source.distribution not in packages:
        return None
    return f"its own package, {source.distribution}, computed the truth"


def is_foreign(trial: Trial) -> bool:
    """Returns whether the truth, or the model that makes it, comes from another package."""
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
