"""Models by name, and what their exports are judged by."""

from collections.abc import Callable, Sequence

from comparative_benchmark.artifacts.exporters.outcomes import Subject
from comparative_benchmark.backends.api import BackendInfo, judges_of
from comparative_benchmark.results.record import Status
from comparative_benchmark.runs.preparation import Preparation
from comparative_benchmark.runs.session import SessionEnded
from comparative_benchmark.runs.settings import RunSettings
from comparative_benchmark.runs.trial import Competitor, Trial
from openxla.benchmark import synonyms, testdata
from openxla.benchmark.comparative_suite.expressions import Expression
from openxla.benchmark.def_types import BenchmarkCase, DefinitionError, ModelFrameworkType
from openxla.benchmark.workloads import workload_of

_FRAMEWORKS = (
    ModelFrameworkType.PYTORCH,
    ModelFrameworkType.JAX,
    ModelFrameworkType.TF_V2,
    ModelFrameworkType.TFLITE,
)


def framework(name: str) -> ModelFrameworkType:
    """Returns the framework that a name stands for, e.g. `pt` or `pytorch`.

    Raises:
      DefinitionError: there is none.
    """
    try:
        return ModelFrameworkType(synonyms.framework(name))
    except ValueError:
        known = ", ".join(item.value for item in _FRAMEWORKS)
        raise DefinitionError(f"unknown framework {name!r}; choices are {known}") from None


def cases(
    every: Sequence[BenchmarkCase], *, name: str | None, of: ModelFrameworkType | None
) -> list[BenchmarkCase]:
    """Returns the default case of each model that is meant, in their order.

    Args:
      every: where to look.
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
    found: Sequence[BenchmarkCase],
    settings: RunSettings,
    announce: Callable[[str], None],
    *,
    reference: BackendInfo | None = None,
) -> tuple[list[Subject], dict[str, SessionEnded]]:
    """Makes or finds inputs, truth and reference of each model.

    Args:
      found: cases.
      settings: of the processes that do so.
      announce: is told what is being made.
      reference: the backend whose framework computes them; the usual one where none is given.

    Returns:
      The models whose exports can be judged, and why others cannot, by the name of the model.
    """
    trials, failures = [], {}
    for case in found:
        backend = reference or _reference_of(case)
        if backend is None:
            reason = (
                "no backend computes the truth of "
                f"{case.model.model_impl.framework_type.value} models"
            )
            failures[case.model.name] = SessionEnded(Status.FAILED, "artifacts", reason)
            continue
        competitor = Competitor(backend=backend, compiler=backend.compilers[0])
        trials.append(
            Trial(
                case=case,
                workload=workload_of(case),
                competitor=competitor,
                device=settings.device,
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
    """Returns the backend that computes truths of the framework, best one that is installed."""
    kind = case.model.model_impl.framework_type
    return min(judges_of(kind), key=lambda info: bool(info.missing_modules(kind)), default=None)
