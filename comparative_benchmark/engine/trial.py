"""A trial (case x backend x device) and its competitor."""

import hashlib
import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import attrs

from comparative_benchmark.analysis.verification import error_limits
from comparative_benchmark.analysis.verification.error_limits import MIN_SQNR, sqnr_db
from comparative_benchmark.analysis.verification.verification import relative_rmse
from comparative_benchmark.backends.api import (
    BackendInfo,
    CompilerInfo,
    Level,
    UnknownBackendError,
    backends,
    get_backend,
)
from comparative_benchmark.backends.missing_packages import Absence
from comparative_benchmark.backends.recipes import Chosen, RecipeError, chosen_among, parse
from comparative_benchmark.backends.recipes.definition import ROUNDING_OF_PRECISION, Rounding
from comparative_benchmark.backends.recipes.registry import GUIDE_BACKEND, accept_from_guide, is_one
from comparative_benchmark.engine.session import Program
from comparative_benchmark.engine.settings import Environment
from comparative_benchmark.results.outcome import TrialOutcome
from comparative_benchmark.results.record import ResultKey
from openxla.benchmark import synonyms
from openxla.benchmark.artifacts import strict_json
from openxla.benchmark.artifacts.strict_json import MalformedError, Record
from openxla.benchmark.artifacts.workload_store import QUANTISED, Due, WorkloadArtifacts
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DeviceSpec,
    Model,
    ModelFrameworkType,
    Workload,
)
from openxla.benchmark.files import write_atomically
from openxla.benchmark.operators import guide_functions

MARGIN_DB = 3.0
# Extra margin for activation scales calibrated on other inputs, which a plain run cannot reproduce:
# LiteRT's converter loses 6 dB (docs/concepts/recipes.md).
CALIBRATION_DB = 6.0
# Increase this when the same `Rounding` gives different numbers.
_VERSION = 1
# JSON has no infinity.
_MOST_DB = 999.0

# Runs the model with rounding on input files; returns output files, or None if this kind of model
# cannot be run that way.
QuantisedRun = Callable[[Sequence[Path]], Sequence[Path] | None]


class RecipeNoise(Record, frozen=True, kw_only=True):
    """Signal-to-quantisation-noise ratios in dB, by output.

    Attributes:
      first: ratios on the first input.
      second: ratios on the second input; empty without one.
      margin_db: how far below these ratios a correct program may be.
    """

    first: tuple[float | None, ...]
    second: tuple[float | None, ...] = ()
    margin_db: float = MARGIN_DB

    @classmethod
    def of(cls, artifacts: WorkloadArtifacts, rounding: Rounding, run: QuantisedRun) -> Self | None:
        """Returns the noise of a recipe on a workload, stored next to the truth.

        None if this kind of model cannot be run with rounding.

        Raises:
          SessionEnded: the plain run failed.
        """
        made_of = json.dumps([_VERSION, attrs.asdict(rounding)], sort_keys=True)
        name = hashlib.sha256(made_of.encode()).hexdigest()[:32]
        path = artifacts.directory / QUANTISED / f"{name}.json"
        if path.is_file():
            try:
                return strict_json.read(path, cls)
            except MalformedError:
                path.unlink()  # written by another version
        first = _ratios(artifacts.first, run)
        if first is None:
            return None
        noise = cls(
            first=first,
            second=(_ratios(artifacts.second, run) if artifacts.second else None) or (),
            margin_db=MARGIN_DB + CALIBRATION_DB * (rounding.outputs is not None),
        )
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, strict_json.to_bytes(noise))
        return noise

    @property
    def weakest(self) -> float | None:
        """The smallest ratio over outputs, on the first input."""
        return min((value for value in self.first if value is not None), default=None)

    @property
    def least_of_all_db(self) -> float:
        """The smallest allowed ratio over outputs and inputs; minus infinity if unknown."""
        known = [value for value in (*self.first, *self.second) if value is not None]
        return min(known, default=-math.inf) - self.margin_db

    def least_db(self, *, second: bool) -> list[float | None]:
        """Returns the smallest allowed ratio of each output; None if unknown."""
        ratios = self.second if second else self.first
        return [None if value is None else value - self.margin_db for value in ratios]


def _ratios(due: Due, run: QuantisedRun) -> tuple[float | None, ...] | None:
    outputs = run(due.inputs)
    if outputs is None:
        return None
    errors = [relative_rmse(*paths) for paths in zip(outputs, due.truth, strict=True)]
    return tuple(
        None if error is None or not math.isfinite(error) else min(sqnr_db(error), _MOST_DB)
        for error in errors
    )


# Value of `--backend` for all installed backends.
ALL_BACKENDS = "all"


@attrs.frozen(kw_only=True)
class Competitor:
    """A backend with a compiler, compiler options and the environment that it runs in."""

    backend: BackendInfo
    compiler: CompilerInfo
    options: tuple[str, ...] = ()
    environment: Environment | None = None

    @property
    def compiler_label(self) -> str:
        """Compiler and options, e.g. `inductor+freezing`."""
        return "+".join([self.compiler.name, *self.options])

    @property
    def level(self) -> Level:
        """The measured level: the compiler's if defined, else the backend's."""
        return self.compiler.level or self.backend.level

    def __str__(self) -> str:
        where = f"@{self.environment.name}" if self.environment else ""
        return f"{self.backend.name}:{self.compiler_label}{where}"

    @property
    def recipe(self) -> Chosen | None:
        """The recipe among the options, if any."""
        return chosen_among(self.options) if self.compiler.takes_recipes else None

    @property
    def precision(self) -> str | None:
        """Precision that it quantises models to; None if it keeps their data type."""
        return self.recipe.label if self.recipe else self.compiler.precision

    @property
    def rounding(self) -> Rounding | None:
        """The values that quantisation rounds; None if it rounds none or they are unknown."""
        if self.recipe is not None:
            return self.recipe.rounding_in(self.backend.name)
        return ROUNDING_OF_PRECISION.get(self.compiler.precision or "")

    @property
    def why_it_cannot_train(self) -> str | None:
        """Why it cannot run forward and backward; None if it may try."""
        if self.recipe is not None and self.backend.name not in self.recipe.recipe.trains:
            return (
                f"{self.recipe.label} does not support training in {self.backend.name}: quantised "
                "weights have no gradients"
            )
        if self.recipe is None and self.compiler.precision is not None:
            return f"{self} quantises for inference only: quantised weights have no gradients"
        return None

    @property
    def why_it_takes_no_training_step(self) -> str | None:
        """Why it cannot train a model of the suite; None if it may try."""
        if not self.compiler.trains:
            return f"{self} runs exported programs, which do not update weights"
        if self.recipe is not None:
            return f"{self.recipe.label} changes layers, so it would train a different model"
        if "cuda-graphs" in self.options:
            return "a CUDA graph would contain the forward and backward passes, but no optimizer"
        return None

    @property
    def is_installed(self) -> bool:
        """Whether it can run models of at least one framework."""
        return not all(map(self.missing_modules, self.backend.modules))

    def missing_modules(
        self, framework: ModelFrameworkType, *, from_program: bool = False
    ) -> list[str]:
        """Returns the required modules that are missing in its environment.

        Args:
          framework: framework of the model.
          from_program: whether to start from published programs; some backends cannot.
        """
        compiler = self.compiler.name if from_program and self.backend.starts_from else None
        if self.environment is None:
            return self.backend.missing_modules(framework, program_compiler=compiler)
        needed = self.backend.needed_modules(framework, program_compiler=compiler)
        return [name for name in needed if name in self.environment.missing]

    def absence(
        self, framework: ModelFrameworkType, *, from_program: bool = False
    ) -> Absence | None:
        """Returns the missing modules, its recipe's included; None if it can run.

        Args:
          framework: framework of the model.
          from_program: whether to start from published programs.
        """
        if self.recipe and self.environment is None:
            absence = self.backend.absence_of_recipes()
            if absence is not None:
                return absence
        missing = self.missing_modules(framework, from_program=from_program)
        if not missing:
            return None
        if self.environment is None:
            return self.backend.absence(missing)
        return Absence(
            modules=tuple(missing),
            environment=self.environment.name,
            python=self.environment.python,
        )


@attrs.frozen(kw_only=True)
class Trial:
    """One case run by one competitor on one device.

    Attributes:
      program: published program that it starts from; None if the backend exports.
      noise: noise of its recipe on this workload; None without a recipe, or if unknown.
      refused: why it must not be run; None if it may be.
    """

    case: BenchmarkCase
    workload: Workload
    competitor: Competitor
    device: DeviceSpec
    program: Program | None = attrs.field(default=None, eq=False)
    noise: RecipeNoise | None = attrs.field(default=None, eq=False)
    refused: str | None = attrs.field(default=None, eq=False)

    @property
    def key(self) -> ResultKey:
        """Key that distinguishes trials of a run; used by `--resume`."""
        return (self.case.name, str(self.competitor), self.device.name)

    @property
    def autotunes(self) -> bool:
        """Whether its compiler chooses by measuring, so that each compilation may differ."""
        settings = {*self.competitor.options, self.device.accelerator_type}
        return not settings.isdisjoint(self.competitor.compiler.autotunes)

    @property
    def device_fields(self) -> dict[str, Any]:
        """The fields of the device as plain values."""
        attributes = dict(self.device.accelerator_attributes)
        return {**attrs.asdict(self.device), "accelerator_attributes": attributes}

    @property
    def precision(self) -> str | None:
        """Precision of the computation: the data type, unless compiler or case quantise."""
        return self.competitor.precision or self.workload.data_type or self.case.data_type

    @property
    def verify_parameters(self) -> dict[str, float]:
        """Verification parameters of the case, with limits for quantised precisions."""
        given = self.case.verify_parameters
        if recipe := self.competitor.recipe:
            parameters = {MIN_SQNR: given.get(MIN_SQNR, recipe.min_sqnr_db)}
        else:
            parameters = error_limits.parameters_for(
                self.competitor.compiler.precision,
                self.workload.data_type,
                given,
            )
        if self.noise is not None and MIN_SQNR in parameters and MIN_SQNR not in given:
            parameters[MIN_SQNR] = max(parameters[MIN_SQNR], self.noise.least_of_all_db)
        return parameters

    def __str__(self) -> str:
        return f"{self.case.model.name} {self.competitor}"


def parse_competitors(text: str, accelerator: str) -> list[Competitor]:
    """Parses competitors from text such as `a,b:compiler,c:compiler+option`.

    A backend without a compiler means its default compilers for that accelerator; `all` means those
    of every installed backend.

    Raises:
      UnknownBackendError: a name is unknown; the message gives the choices.
    """
    competitors: dict[str, Competitor] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        if item == ALL_BACKENDS:
            every, _ = installed_competitors(accelerator)
            competitors |= {str(competitor): competitor for competitor in every}
            continue
        try:
            name, _, compiler = synonyms.competitor(item).partition(":")
        except ValueError as error:
            raise UnknownBackendError(str(error)) from error
        compilers = [compiler] if compiler else []
        for competitor in competitors_of(get_backend(name), compilers, accelerator):
            competitors[str(competitor)] = competitor
    if not competitors:
        raise UnknownBackendError(f"no backend given; choices are {', '.join(backends())}")
    return list(competitors.values())


def installed_competitors(
    accelerator: str, *, variants: bool = True, models: Iterable[Model] = ()
) -> tuple[list[Competitor], dict[str, Absence]]:
    """Returns the default competitors of installed backends, and what the others lack.

    A backend counts as installed if it can run models of at least one framework.

    Args:
      accelerator: accelerator type of the device.
      variants: whether to include compilers that are settings of another one.
      models: models to run: backends that support none of them are ignored. Empty for all.
    """
    models = list(models)
    installed: list[Competitor] = []
    absent: dict[str, Absence] = {}
    for backend in backends().values():
        missing = {framework: backend.missing_modules(framework) for framework in backend.modules}
        if all(missing.values()):
            if models and not any(map(backend.takes, models)):
                continue
            names = sorted({name for modules in missing.values() for name in modules})
            absent[backend.name] = backend.absence(names)
        else:
            usual = competitors_of(backend, [], accelerator)
            installed += [item for item in usual if variants or not item.compiler.variant]
    return installed, absent


def in_environments(
    competitors: Sequence[Competitor], environments: Sequence[Environment]
) -> list[Competitor]:
    """Returns each competitor once per environment, or unchanged without environments."""
    placed = [
        attrs.evolve(competitor, environment=environment)
        for competitor in competitors
        for environment in environments
    ]
    return placed or list(competitors)


def competitors_of(
    backend: BackendInfo, compilers: Sequence[str], accelerator: str
) -> list[Competitor]:
    """Returns the given compilers (`name+option`) of a backend, or its defaults.

    Raises:
      UnknownBackendError: the backend has no such compiler.
    """
    if not compilers:
        return [
            Competitor(backend=backend, compiler=compiler)
            for compiler in backend.compilers
            if compiler.default and compiler.accelerator in (None, accelerator)
        ]
    return [_competitor(backend, compiler) for compiler in compilers]


def _competitor(backend: BackendInfo, text: str) -> Competitor:
    name, *options = text.split("+")
    compiler = backend.compiler(name)
    for option in options:
        if option not in compiler.options:
            _check_recipe(backend, compiler, option)
    competitor = Competitor(backend=backend, compiler=compiler, options=tuple(sorted(set(options))))
    try:
        competitor.recipe  # noqa: B018  # two recipes raise an error
    except RecipeError as error:
        raise UnknownBackendError(f"{backend.name}:{text}: {error}") from error
    return competitor


def _check_recipe(backend: BackendInfo, compiler: CompilerInfo, option: str) -> None:
    """Raises `UnknownBackendError` unless an option is a recipe that the compiler accepts."""
    known = ", ".join(compiler.options) or "none"
    problem = f"{backend.name}:{compiler.name} has no option {option!r} (options: {known})"
    if not compiler.takes_recipes:
        raise UnknownBackendError(problem)
    try:
        parse(option).check_backend(backend.name)
    except RecipeError as error:
        hint = ""
        if backend.name == GUIDE_BACKEND and not is_one(option):
            # Try this last, because it starts a process.
            if (refusal := accept_from_guide(option)) is None:
                return
            hint = f"; {refusal.clause}{guide_functions.RECIPE_HINT}"
        raise UnknownBackendError(
            f"{problem}, and it is not a valid recipe: {error}{hint}"
        ) from error


def first_look(raced: Sequence[tuple[Trial, TrialOutcome]], processes: int) -> str | None:
    """Returns a line with the latency of each trial whose output is correct so far.

    None if there is nothing to wait for: fewer than two trials, or no more processes.
    """
    known = [
        f"{trial.competitor} ({trial.case.model.model_impl.framework_type.value}) "
        f"{_three_digits(statistics.median(latencies))} ms"
        for trial, outcome in raced
        if not outcome.ended and (latencies := outcome.processes[0].latencies_ms)
    ]
    if len(known) < 2 or processes < 2:
        return None
    return f"first processes: {', '.join(known)}; verdicts need at least {processes} per competitor"


def _three_digits(value: float) -> str:
    return f"{float(f'{value:.3g}'):g}"
