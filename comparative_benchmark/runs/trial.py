"""A trial (case x backend x device) and how it ended."""

from collections.abc import Iterable, Sequence

import attrs

from comparative_benchmark.backends.api import (
    BackendInfo,
    CompilerInfo,
    Level,
    UnknownBackendError,
    backends,
    get_backend,
)
from comparative_benchmark.backends.missing_packages import Absence
from comparative_benchmark.judge import quantized_verification
from comparative_benchmark.judge.quantized_verification import MIN_SQNR
from comparative_benchmark.recipes import Chosen, RecipeError, chosen_among, parse
from comparative_benchmark.recipes.registry import GUIDE_BACKEND, accept_from_guide, is_one
from comparative_benchmark.recipes.rounding import ROUNDING_OF_PRECISION, Rounding
from comparative_benchmark.results.record import ResultKey
from comparative_benchmark.runs.environments import Environment
from comparative_benchmark.runs.published_program import Program
from comparative_benchmark.runs.recipe_noise import RecipeNoise
from openxla.benchmark import synonyms
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DeviceSpec,
    Model,
    ModelFrameworkType,
    Workload,
)
from openxla.benchmark.operators import guide_functions

# What `--backend` calls all backends that are installed.
ALL_BACKENDS = "all"


@attrs.frozen(kw_only=True)
class Competitor:
    """A backend with one of its compilers, options of that compiler, and where it is installed."""

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
        """What it measures: the compiler's own word, or else its backend's."""
        return self.compiler.level or self.backend.level

    def __str__(self) -> str:
        where = f"@{self.environment.name}" if self.environment else ""
        return f"{self.backend.name}:{self.compiler_label}{where}"

    @property
    def recipe(self) -> Chosen | None:
        """The recipe among its options."""
        return chosen_among(self.options) if self.compiler.takes_recipes else None

    @property
    def precision(self) -> str | None:
        """What it quantises models to; None where it keeps their data type."""
        return self.recipe.label if self.recipe else self.compiler.precision

    @property
    def rounding(self) -> Rounding | None:
        """The values that it rounds when it quantises; None if it does not, or if unknown."""
        if self.recipe is not None:
            return self.recipe.rounding_in(self.backend.name)
        return ROUNDING_OF_PRECISION.get(self.compiler.precision or "")

    @property
    def why_it_cannot_train(self) -> str | None:
        """Why it cannot run forward and backward; None if it may try."""
        if self.recipe is not None and self.backend.name not in self.recipe.recipe.trains:
            return (
                f"{self.recipe.label} does not allow training in {self.backend.name}: the weights "
                "that it quantises have no gradients"
            )
        if self.recipe is None and self.compiler.precision is not None:
            return f"{self} quantises for inference: weights that it quantises have no gradients"
        return None

    @property
    def why_it_takes_no_training_step(self) -> str | None:
        """Why it cannot train a model of the suite; None if it may try."""
        if not self.compiler.trains:
            return f"{self} runs a program that was exported: it updates no weights"
        if self.recipe is not None:
            return f"{self.recipe.label} changes layers, whose training would be another one"
        if "cuda-graphs" in self.options:
            return "a CUDA graph would hold forward and backward, and not the optimizer"
        return None

    @property
    def is_installed(self) -> bool:
        """Whether it can run the models of one framework at least."""
        return not all(map(self.missing_modules, self.backend.modules))

    def missing_modules(
        self, framework: ModelFrameworkType, *, from_program: bool = False
    ) -> list[str]:
        """Returns the modules that are not installed where it would run.

        Args:
          framework: of the model.
          from_program: whether published programs are wanted; some backends start from none.
        """
        compiler = self.compiler.name if from_program and self.backend.starts_from else None
        if self.environment is None:
            return self.backend.missing_modules(framework, program_compiler=compiler)
        needed = self.backend.needed_modules(framework, program_compiler=compiler)
        return [name for name in needed if name in self.environment.missing]

    def absence(
        self, framework: ModelFrameworkType, *, from_program: bool = False
    ) -> Absence | None:
        """Returns the absence of modules that it needs, also for its recipe; None if it can run.

        Args:
          framework: of the model.
          from_program: whether published programs are wanted.
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
    """One case by one competitor on one device.

    Attributes:
      program: the published program that it starts from, None where the backend exports.
      noise: of its recipe on this workload; None without a recipe, or if it is unknown.
      refused: why it is not even tried; None if it is.
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
        """What tells it from other trials of a run; `--resume` goes by it."""
        return (self.case.name, str(self.competitor), self.device.name)

    @property
    def autotunes(self) -> bool:
        """Whether its compiler chooses by measuring: each compile is then a choice of its own."""
        settings = {*self.competitor.options, self.device.accelerator_type}
        return not settings.isdisjoint(self.competitor.compiler.autotunes)

    @property
    def precision(self) -> str | None:
        """What it computes in: the data type, unless the compiler or the case quantises."""
        return self.competitor.precision or self.workload.data_type or self.case.data_type

    @property
    def verify_parameters(self) -> dict[str, float]:
        """Those of the case, with the limits of a quantised precision."""
        if recipe := self.competitor.recipe:
            found = {MIN_SQNR: recipe.min_sqnr_db}
        else:
            found = quantized_verification.parameters_for(
                self.competitor.compiler.precision,
                self.workload.data_type,
                self.case.verify_parameters,
            )
        if self.noise is not None and MIN_SQNR in found:
            found[MIN_SQNR] = max(found[MIN_SQNR], self.noise.least_of_all_db)
        return found

    def __str__(self) -> str:
        return f"{self.case.model.name} {self.competitor}"


def parse_competitors(text: str, accelerator: str) -> list[Competitor]:
    """Returns the competitors that `a,b:compiler,c:compiler+option` names.

    A backend without a compiler stands for all its default compilers for that accelerator; `all`
    for those of every installed backend.

    Raises:
      UnknownBackendError: a name is unknown; the message gives the choices.
    """
    found: dict[str, Competitor] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        if item == ALL_BACKENDS:
            every, _ = installed_competitors(accelerator)
            found |= {str(competitor): competitor for competitor in every}
            continue
        try:
            name, _, compiler = synonyms.competitor(item).partition(":")
        except ValueError as error:
            raise UnknownBackendError(str(error)) from error
        compilers = [compiler] if compiler else []
        for competitor in competitors_of(get_backend(name), compilers, accelerator):
            found[str(competitor)] = competitor
    if not found:
        raise UnknownBackendError(f"no backend given; choices are {', '.join(backends())}")
    return list(found.values())


def installed_competitors(
    accelerator: str, *, variants: bool = True, models: Iterable[Model] = ()
) -> tuple[list[Competitor], dict[str, Absence]]:
    """Returns the usual competitors of all installed backends, and what the others lack.

    A backend counts as installed when it can run models of one framework at least.

    Args:
      accelerator: type of the device.
      variants: with those that are another setting of a compiler that is there, too.
      models: that are to be run: a backend that takes none of them need not be got. Empty for all.
    """
    models = list(models)
    installed: list[Competitor] = []
    absent: dict[str, Absence] = {}
    for backend in backends().values():
        missing = {framework: backend.missing_modules(framework) for framework in backend.modules}
        if all(missing.values()):
            if models and not any(map(backend.takes, models)):
                continue
            names = sorted({name for found in missing.values() for name in found})
            absent[backend.name] = backend.absence(names)
        else:
            usual = competitors_of(backend, [], accelerator)
            installed += [item for item in usual if variants or not item.compiler.variant]
    return installed, absent


def in_environments(
    competitors: Sequence[Competitor], environments: Sequence[Environment]
) -> list[Competitor]:
    """Returns each competitor once in each environment, or as it is if there are none."""
    if not environments:
        return list(competitors)
    return [
        attrs.evolve(competitor, environment=environment)
        for competitor in competitors
        for environment in environments
    ]


def competitors_of(
    backend: BackendInfo, compilers: Sequence[str], accelerator: str
) -> list[Competitor]:
    """Returns the given compilers (`name+option`) of a backend, or its default ones.

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
    found = Competitor(backend=backend, compiler=compiler, options=tuple(sorted(set(options))))
    try:
        found.recipe  # noqa: B018  # two of them are no competitor
    except RecipeError as error:
        raise UnknownBackendError(f"{backend.name}:{text}: {error}") from error
    return found


def _check_recipe(backend: BackendInfo, compiler: CompilerInfo, option: str) -> None:
    """Raises UnknownBackendError unless an option is a recipe that the compiler takes."""
    known = ", ".join(compiler.options) or "none"
    if not compiler.takes_recipes:
        raise UnknownBackendError(
            f"{backend.name}:{compiler.name} has no option {option!r}; choices are {known}"
        )
    try:
        parse(option).check_backend(backend.name)
    except RecipeError as error:
        hint = ""
        if backend.name == GUIDE_BACKEND and not is_one(option):
            # As the last resort: that takes a process.
            if (refusal := accept_from_guide(option)) is None:
                return
            hint = f"; {refusal.clause}{guide_functions.RECIPE_HINT}"
        raise UnknownBackendError(
            f"{backend.name}:{compiler.name} has no option {option!r}; choices are {known} and "
            f"recipes: {error}{hint}"
        ) from error
