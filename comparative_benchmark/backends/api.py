"""The backend interface: a framework or runtime with its compilers, behind one small class.

The parent process reads `BackendInfo` only and imports no framework; a worker imports the class
that `BackendInfo.implementation` names. Packages register a `BackendInfo` in the entry point group
`comparative_benchmark.backends`, as the backends of this repository do.
"""

import abc
import functools
import importlib
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from comparative_benchmark.backends.compiled_calls import CompiledCalls
from comparative_benchmark.backends.host_settings import HostSettings
from comparative_benchmark.backends.missing_packages import Absence, is_installed
from comparative_benchmark.errors import UsageError
from openxla.benchmark.def_types import DeviceSpec, Model, ModelFrameworkType
from openxla.benchmark.installation import install_command
from openxla.benchmark.plugins import plugins, why_left_out
from openxla.benchmark.text import choices

OutputMode: TypeAlias = Literal["bound", "allocated"]


@attrs.frozen(kw_only=True)
class OutputRule:
    """The ways in which a backend can hold outputs.

    Attributes:
      modes: supported modes, the stack's usual mode first. `bound`: every run writes to
        the same memory. `allocated`: each run gets new memory, inside the timed region.
      reason: why only one mode is supported; empty if both are.
    """

    modes: tuple[OutputMode, ...]
    reason: str = ""


ALLOCATED_ONLY = "each call allocates its outputs and cannot write them to existing buffers"


if TYPE_CHECKING:
    from comparative_benchmark.backends.model_protocols import StepParts
    from openxla.benchmark.training.models import Draw

BACKENDS_GROUP = "comparative_benchmark.backends"
# Minimum share of compiled code in the time of a result that names a compiler.
LEAST_COMPILED = 0.95
# A fixed seed gives a model the same weights in every process.
_SEED = 0

Array = npt.NDArray[np.generic]
Level = Literal["framework_level", "compiler_level"]
PhaseTimer = Callable[[str], AbstractContextManager[None]]


@contextmanager
def untimed(_: str) -> Iterator[None]:
    """A `PhaseTimer` that measures nothing."""
    yield


class UnknownBackendError(UsageError, LookupError):
    """Unknown backend, compiler or option; the message lists the choices."""


class UnsupportedError(Exception):
    """A backend cannot run this case here; the message gives a reason that users can act on."""


@attrs.frozen(kw_only=True)
class CompilerInfo:
    """One compiler, or compile mode, of a backend.

    Attributes:
      name: the name on the command line.
      description: a few words for listings.
      options: names that may follow it, as in `inductor+freezing`.
      default: whether it runs if only the backend is named.
      variant: whether it is the backend's main compiler with another setting. Variants are raced
        like other compilers, but get no column where each backend is tried once.
      accelerator: the accelerator type that it compiles for; None for all.
      level: its measurement level, if different from the rest of its backend.
      precision: the type that it quantises models to, e.g. `int8`; None if it keeps their type.
      autotunes: options and accelerator types with which it chooses among programs by measuring
        them, so that another compilation may choose differently.
      trains: whether it supports training steps: forward, backward and weight update.
      takes_recipes: whether the options may include a recipe, see `backends.recipes`.
    """

    name: str
    description: str
    options: tuple[str, ...] = ()
    default: bool = True
    variant: bool = False
    accelerator: str | None = None
    level: Level | None = None
    precision: str | None = None
    autotunes: tuple[str, ...] = ()
    takes_recipes: bool = False
    trains: bool = False


@attrs.frozen(kw_only=True)
class BackendInfo:
    """Description of a backend for the parent process.

    Attributes:
      name: the name on the command line.
      implementation: `module:Class` of the `Backend`.
      level: whether it measures through a framework or runs an exported program; a compiler may
        differ (see `CompilerInfo.level`).
      modules: by framework of the model, the modules that must be installed.
      install: the command that installs them.
      setup_script: a command that creates an environment with them; None without one.
      compilers: the compilers, or compile modes.
      reference: `module:function` that computes truth and reference (see `Reference`), if offered.
        A plug-in's function is used only if no built-in backend judges the framework.
      files_only: frameworks for which it runs users' files, but not the suite's cases.
      judges: frameworks whose truth and reference it computes; empty for all of `modules`.
      environment: environment variables of the worker; `{work_dir}`, `{cache_dir}`, `{threads}`,
        `{accelerator}` and `{jax_platforms}` are filled in. Compile caches point into `cache_dir`,
        which is empty for the first process of a trial (cold) and kept for the others (warm).
      profiling: further variables of a worker that only profiles and measures nothing: they may
        change the program so that its kernels can be distinguished.
      starts_from: by compiler, the types of published artifacts that it can start from instead of
        the model. The types are alternatives; each is complete by itself. Empty if there are none.
        Artifacts of a compiler for one type of accelerator are programs for that type; all others
        are for CPUs.
      program_modules: by compiler, the modules that must be installed to start from such an
        artifact; a compiler that is not listed needs those of the model's framework.
      packages: by module, the distribution whose version is recorded in results if a worker has
        imported the module.
      reproducer: `module:function` that exports a program which runs without the suite (see
        `studies.reproduce`), if offered.
      extras: extras of this project that the backend's own environment contains; empty for a
        backend of another project.
      recipe_modules: modules that must also be installed if the options include a recipe.
    """

    name: str
    implementation: str
    level: Level
    modules: Mapping[ModelFrameworkType, tuple[str, ...]]
    install: str
    compilers: tuple[CompilerInfo, ...]
    setup_script: str | None = None
    reference: str | None = None
    files_only: tuple[ModelFrameworkType, ...] = ()
    judges: tuple[ModelFrameworkType, ...] = ()
    environment: Mapping[str, str] = attrs.field(factory=dict)
    profiling: Mapping[str, str] = attrs.field(factory=dict)
    starts_from: Mapping[str, tuple[tuple[str, ...], ...]] = attrs.field(factory=dict)
    program_modules: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    packages: Mapping[str, str] = attrs.field(factory=dict)
    reproducer: str | None = None
    extras: tuple[str, ...] = ()
    recipe_modules: tuple[str, ...] = ()

    def compiler(self, name: str) -> CompilerInfo:
        """Returns the compiler with this name.

        Raises:
          UnknownBackendError: there is no such compiler.
        """
        for compiler in self.compilers:
            if compiler.name == name:
                return compiler
        known = choices(name, (compiler.name for compiler in self.compilers))
        raise UnknownBackendError(f"{self.name} has no compiler {name!r}; {known}")

    @property
    def suite_frameworks(self) -> list[ModelFrameworkType]:
        """Returns the frameworks whose models in the suite the backend supports."""
        return [framework for framework in self.modules if framework not in self.files_only]

    def takes(self, model: Model) -> bool:
        """Returns whether it supports the model's framework and form."""
        is_file = "program" in model.model_parameters
        frameworks = self.modules if is_file else self.suite_frameworks
        return model.model_impl.framework_type in frameworks

    def computes_truth_of(self, framework: ModelFrameworkType) -> bool:
        """Returns whether it computes truth and reference for a framework's models."""
        return self.reference is not None and framework in (self.judges or self.modules)

    def needed_modules(
        self, framework: ModelFrameworkType, *, program_compiler: str | None = None
    ) -> tuple[str, ...]:
        """Returns the modules that must be installed.

        Args:
          framework: framework of the model.
          program_compiler: the compiler that starts from a published program; None if it starts
            from the model.
        """
        usual = self.modules.get(framework, ())
        return self.program_modules.get(program_compiler, usual) if program_compiler else usual

    def missing_modules(
        self, framework: ModelFrameworkType, *, program_compiler: str | None = None
    ) -> list[str]:
        """Returns the needed modules that are not installed, without importing any."""
        needed = self.needed_modules(framework, program_compiler=program_compiler)
        return [name for name in needed if not is_installed(name)]

    def absence(self, missing: Sequence[str]) -> Absence:
        """Returns an `Absence` of these modules from this process's environment."""
        return Absence(modules=tuple(missing), install=self.install, setup_script=self.setup_script)

    def absence_of_recipes(self) -> Absence | None:
        """Returns the absence of modules that recipes need; None if all are installed."""
        missing = tuple(name for name in self.recipe_modules if not is_installed(name))
        if not missing:
            return None
        return Absence(modules=missing, install=install_command("recipes"), recipes_of=self.name)


@attrs.frozen(kw_only=True)
class BackendContext:
    """The arguments of a `Backend`.

    Attributes:
      compiler: name of one of its compilers.
      options: options of that compiler, by name.
      device: device to run on.
      threads: number of host threads to use.
      work_dir: a fresh directory for files that the stack writes; removed after the trial.
      phase: `with context.phase("compile"):` times a phase; repeated phases add up.
      exported: files of a published program to start from, by type; `load` then gets a
        `ModelDefinition` instead of a model. Empty if the backend exports the program itself.
      kept: whether these files are not published, but come from `Backend.exports` in the first
        process of the same trial.
      outputs: how to hold outputs; None for the stack's usual mode.
    """

    compiler: str
    options: tuple[str, ...]
    device: DeviceSpec
    threads: int
    work_dir: Path
    phase: PhaseTimer
    exported: Mapping[str, tuple[Path, ...]] = attrs.field(factory=dict)
    kept: bool = False
    outputs: OutputMode | None = None

    @classmethod
    def read(cls, value: Mapping[str, Any], phase: PhaseTimer) -> "BackendContext":
        """Returns a context from its other attributes as JSON values.

        Raises:
          UnsupportedError: the compiler, by its `accelerator`, is not for the device.
        """
        device, exported = DeviceSpec(**value["device"]), value.get("exported", {})
        if value.get("accelerator") not in (None, device.accelerator_type):
            raise UnsupportedError(
                f"compiler {value['compiler']} runs only on {value['accelerator'].upper()}s, but "
                f"the device is {device.name}: choose another device with --device"
            )
        return cls(
            compiler=value["compiler"],
            options=tuple(value["options"]),
            device=device,
            threads=value["threads"],
            work_dir=Path(value["work_dir"]),
            phase=phase,
            exported={kind: tuple(map(Path, paths)) for kind, paths in exported.items()},
            kept=value.get("kept", False),
            outputs=value.get("outputs"),
        )


@attrs.frozen(kw_only=True)
class ModelDefinition:
    """How to create a model, for backends that create it in another process.

    Attributes:
      module_path: the module that offers `create_model`.
      parameters: its arguments; plain JSON values.
    """

    module_path: str
    parameters: Mapping[str, Any]

    @classmethod
    def of(cls, model: Model) -> "ModelDefinition":
        """Returns the definition of a model in the catalogue."""
        path = str(model.model_impl.module_path)
        return cls(module_path=path, parameters=dict(model.model_parameters))

    def create(self) -> Any:
        """Creates the model, in its framework.

        Raises:
          AttributeError: the module does not offer `create_model`.
        """
        # Models may draw weights at import or when they are created.
        _seed_generators()
        module = importlib.import_module(self.module_path)
        create = getattr(module, "create_model", None)
        if create is None:
            raise AttributeError(f"{module.__name__} has no function create_model(**parameters)")
        # JSON has lists for shapes; `create_model` expects tuples.
        parameters = self.parameters.items()
        _seed_generators()
        return create(**{k: tuple(v) if isinstance(v, list) else v for k, v in parameters})


def _seed_generators() -> None:
    """Seeds the generators that models draw weights from, so that all processes draw the same."""
    random.seed(_SEED)
    np.random.seed(_SEED)  # noqa: NPY002  # it is the user's code that draws
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(_SEED)
    if (keras := sys.modules.get("keras")) is not None:
        keras.utils.set_random_seed(_SEED)
    elif (tensorflow := sys.modules.get("tensorflow")) is not None:
        tensorflow.random.set_seed(_SEED)


@attrs.define(kw_only=True)
class BackendFacts:
    """A backend's facts about its program; None for values that it cannot provide.

    `outputs` is how outputs are held; if the backend leaves it out, `Backend.output_mode` is used.

    `graphs` and other details go to `notes`, as plain JSON values. Every backend that supports GPUs
    notes `tf32` (see `host_settings.note`).
    """

    weights: Literal["arguments", "parameters", "frozen"] | None = None
    outputs: OutputMode | None = None
    not_measurable: tuple[str, ...] = ()
    flops: float | None = None
    bytes_accessed: float | None = None
    artifact_sha256: str | None = None
    artifact_size_bytes: int | None = None
    cache_hits: int | None = None
    cache_misses: int | None = None
    device_memory_peak_bytes: int | None = None
    device_name: str | None = None
    notes: dict[str, Any] = attrs.field(factory=dict)


class Backend(abc.ABC):
    """Brings one model from its definition to device-resident execution.

    The worker calls, in this order: `load`, `compile`, then `dispatch` and `synchronize`
    repeatedly. It calls `fetch` and `facts` after the first run and after the last timed run.

    Attributes:
      takes_definition: whether `load` takes a `ModelDefinition` instead of a model. The worker
        then imports no module of the model, and so no framework that the backend does not need.
      rewind: called before each iteration, outside the timed region; None if there is nothing to
        reset between iterations.
      compiled_calls: counts calls of compiled programs; None if `dispatch` can run nothing else.
      peak_is_of_the_model: whether the device's peak memory is reset for each model that a worker
        serves. If not, it is reported for the first model only.
    """

    takes_definition: ClassVar[bool] = False
    peak_is_of_the_model: ClassVar[bool] = False
    rewind: Callable[[], None] | None = None
    compiled_calls: CompiledCalls | None = None

    def __init__(self, context: BackendContext) -> None:
        self.context = context

    @abc.abstractmethod
    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        """Puts weights and inputs on the device; phases `load` and `h2d`.

        Args:
          model: the return value of the module's `create_model`, or a `ModelDefinition`.
          inputs: one array for each argument of the model.

        Raises:
          UnsupportedError: this backend cannot run such a model here.
        """

    @abc.abstractmethod
    def compile(self) -> None:
        """Makes the executable; phases `trace`, `lower`, `compile`, if the stack separates them.

        Phases that cannot be separated are left out and named in `BackendFacts.not_measurable`.
        """

    @abc.abstractmethod
    def dispatch(self) -> Any:
        """Starts one execution on the resident inputs and returns a handle on its outputs."""

    @abc.abstractmethod
    def synchronize(self, outputs: Any) -> None:
        """Waits until the outputs are complete on the device."""

    def iterate(self) -> None:
        """Runs an iteration to its end; never timed as a sample."""
        if self.rewind is not None:
            self.rewind()
        self.synchronize(self.dispatch())

    @abc.abstractmethod
    def fetch(self, outputs: Any) -> list[Any]:
        """Returns the outputs as numpy arrays on the host."""

    @abc.abstractmethod
    def facts(self) -> BackendFacts:
        """Returns facts about the program."""

    def output_rule(self) -> OutputRule | None:
        """Returns how this backend can hold outputs; None if unknown."""
        return None

    def output_mode(self) -> OutputMode | None:
        """Returns how outputs are held: as requested, or else in the stack's usual mode.

        Raises:
          UnsupportedError: the requested mode is not supported.
        """
        rule, asked = self.output_rule(), self.context.outputs
        if asked is None:
            return rule.modes[0] if rule else None
        if rule is None or asked not in rule.modes:
            reason = rule.reason if rule else "the backend does not declare its output modes"
            raise UnsupportedError(f"{asked} outputs are not supported here: {reason}")
        return asked

    def host_settings(self) -> HostSettings | None:
        """Returns the stack's effective settings on the host, as the stack itself reports them.

        Called after the program has run; None if nothing is known.
        """
        return None

    def exports(self) -> Mapping[str, Sequence[Path]]:
        """Returns the files that `compile` exported, by type, for further processes to start from.

        These processes get them as `context.exported`, create no model, and have no phases `trace`
        and `lower`, like a deployment that exports once. Empty if each process has to export.
        """
        return {}

    def release(self) -> None:  # noqa: B027  # most backends leave nothing behind
        """Releases what outlives this object: hooks, caches and settings of the framework.

        Called last, if the process is to serve another model, which would otherwise be affected.
        """

    def replace_inputs(self, inputs: Sequence[Array]) -> bool:
        """Replaces the resident inputs by others of the same shapes and types.

        Later calls of `dispatch` run the same executable on them; nothing is compiled again. If the
        memory of the inputs is writable, they are written into it. Never timed; the worker uses it
        to verify the timed executable on a second input (see `models.second_input`).

        Returns:
          Whether the inputs were replaced; if not, results are not ranked.
        """
        return False

    def poison_outputs(self) -> None:  # noqa: B027  # most programs get new memory in each run
        """Overwrites output buffers that all runs share with values that no run writes.

        Called before a run whose outputs are verified, so that a run that writes nothing cannot
        pass with the outputs of an earlier one. Does nothing if outputs are allocated.
        """

    def run_with(self, inputs: Sequence[Array]) -> list[Any] | None:
        """Runs the loaded model once on further inputs, and returns the outputs on the host.

        Never timed; used to verify generation, with the tokens to feed as an additional input (see
        `models.generation`). A stack that compiles for shapes should reuse what it has compiled.
        None if the backend holds one program and nothing to make another from: the worker then
        creates a second backend of its class for these inputs.
        """
        return None

    def generation_parts(self) -> "GenerationParts":
        """Returns prefill and decode of the loaded model, each compiled as the model was.

        Called for a `GenerationModel` only, after it was measured.

        Raises:
          UnsupportedError: this backend cannot call them separately.
        """
        raise UnsupportedError(
            f"{type(self).__name__} runs a generative model as one program: it cannot call prefill "
            "and decode separately"
        )

    def updated(self, draw: "Draw", steps: int) -> Mapping[str, Array]:
        """Returns the weights after a single optimizer update; the run then starts again.

        Called for a `TrainingModel` of the suite only, after its steps were verified.

        Args:
          draw: gives weights, gradients and moments, see `training.models.draw_update`.
          steps: number of earlier steps that the optimizer assumes.

        Raises:
          UnsupportedError: the update cannot be run separately.
        """
        raise UnsupportedError(f"{type(self).__name__} cannot run a single update separately")

    def step_parts(self) -> "AbstractContextManager[StepParts]":
        """Returns a context in which parts of the loaded model's training step can be run.

        Called for a `TrainingModel` only, after everything else; the run then starts again.

        Raises:
          UnsupportedError: the parts cannot be separated.
        """
        raise UnsupportedError(f"{type(self).__name__} cannot run parts of a step separately")

    def compiled_shares(self) -> Mapping[str, float]:
        """Returns shares of time, 0 to 1; empty if the stack cannot fall back to uncompiled code.

        Called after all verified and timed runs, because it runs further iterations.

        Returns:
          `compiled_share`: share of compiled code in the time of the compiled model;
          `share_of_iteration`: share of calls of the compiled model in an iteration that does more.

        Raises:
          UnsupportedError: `compiled_share` is below `LEAST_COMPILED`.
        """
        return {}

    def complete(self, outputs: Any) -> Any:
        """Returns a handle on the outputs to verify; never timed.

        If an iteration is one of several steps, this runs the others.
        """
        return outputs

    def device_timer(self) -> "DeviceTimer | None":
        """Returns a timer that runs on the device itself; None if there is none."""
        return None

    def retain(self, outputs: Any) -> Any:
        """Returns a handle whose outputs do not change when the program runs again.

        Called if the outputs of a timed run are to be verified after further runs. A program that
        always writes to the same memory copies its outputs here.
        """
        return outputs

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        """Runs the program under the stack's own profiler; called last, if at all.

        Args:
          directory: existing directory for the files.
          iterations: number of executions to profile.

        Returns:
          The files that it wrote, all directly in the directory. `cbs explain` reads one of them,
          `operators.json` (see `operator_profile`): the program's time by operator.

        Raises:
          UnsupportedError: the stack has no profiler here.
        """
        raise UnsupportedError(f"the backend {type(self).__name__} has no profiler")


class GenerationParts(abc.ABC):
    """Prefill and decode as separate programs, and the state between them.

    Attributes:
      steps: number of calls of `decode` after a prefill.
    """

    steps: int

    @abc.abstractmethod
    def prefill(self) -> Any:
        """Starts to read the prompts, replacing everything read before.

        Returns:
          A handle on the first new tokens and the logits that they were chosen by.
        """

    @abc.abstractmethod
    def decode(self) -> Any:
        """Starts to read the tokens chosen last; returns a handle on the next.

        After `steps` calls it continues from the end of the prompt; the work of a step stays the
        same.
        """

    @abc.abstractmethod
    def synchronize(self, handle: Any) -> None:
        """Waits until the tokens and logits of a handle are complete."""

    @abc.abstractmethod
    def fetch(self, handle: Any) -> tuple[Array, Array]:
        """Returns tokens i32[batch] and logits f32[batch, vocab] on the host."""


class DeviceTimer(abc.ABC):
    """Timestamps taken by the device, e.g. CUDA events."""

    def reserve(self, executions: int) -> None:  # noqa: B027  # many have nothing to prepare
        """Prepares for this number of executions, so that marking them costs little."""

    @abc.abstractmethod
    def start(self) -> None:
        """Marks the start of an execution."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Marks the end of an execution."""

    @abc.abstractmethod
    def elapsed_ms(self) -> list[float]:
        """Returns the time of each marked execution since the last call."""


# Computes (truth, reference) of a model on inputs: outputs in float64, and outputs of an op-by-op
# run in the model's own type. The same module may offer `cost(model, inputs)`, which counts the
# work of an iteration (see `WorkloadCost`); without it the cost is unknown.
Reference = Callable[[Any, Sequence[Array]], tuple[list[Any], list[Any]]]


@attrs.frozen
class Origin:
    """The distribution that a backend comes from, and whether it is this one."""

    distribution: str
    built_in: bool


@functools.cache
def _registered() -> Mapping[str, tuple[BackendInfo, Origin]]:
    """Returns every backend with its origin; a plug-in cannot replace a built-in backend."""
    backends: dict[str, tuple[BackendInfo, Origin]] = {}
    for plugin in plugins(BACKENDS_GROUP, BackendInfo):
        origin = Origin(plugin.distribution, plugin.built_in)
        backends.setdefault(plugin.name, (plugin.value, origin))
    return {name: backends[name] for name in sorted(backends)}


@functools.cache
def backends() -> Mapping[str, BackendInfo]:
    """Returns every registered backend by name."""
    return {name: info for name, (info, _) in _registered().items()}


def origin_of(backend: BackendInfo) -> Origin | None:
    """Returns the distribution that a backend comes from; None if it is not registered."""
    _, origin = _registered().get(backend.name, (None, None))
    return origin


def judges_of(framework: ModelFrameworkType) -> list[BackendInfo]:
    """Returns the backends that may compute the truth of a framework's models, best first.

    Built-in backends take precedence: a plug-in must judge neither itself nor its rivals.
    """
    able = [
        (info, origin)
        for info, origin in _registered().values()
        if info.computes_truth_of(framework)
    ]
    built_in = [info for info, origin in able if origin.built_in]
    return built_in or [info for info, _ in able]


def get_backend(name: str) -> BackendInfo:
    """Returns the backend with this name.

    Raises:
      UnknownBackendError: there is no such backend.
    """
    if name not in backends():
        if reason := why_left_out(BACKENDS_GROUP, name):
            raise UnknownBackendError(f"backend {name!r} was {reason}")
        none = "no backends are registered: run `pip install -e .` in the checkout"
        known = choices(name, backends()) if backends() else none
        raise UnknownBackendError(f"no backend {name!r}; {known}")
    return backends()[name]


def recorded_packages() -> dict[str, str]:
    """Returns the packages whose versions results record, by module; see `BackendInfo.packages`."""
    packages = {"numpy": "numpy"}
    for info in backends().values():
        packages |= info.packages
    return packages


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Returns the versions of the installed ones among these distributions, by name."""
    versions = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def load_object(path: str) -> Any:
    """Imports a module and returns the object that `module:name` refers to."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
