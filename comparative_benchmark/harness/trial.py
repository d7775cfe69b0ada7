"""A trial (case x backend x device) and how it ended."""

import enum
from collections.abc import Sequence
from typing import Any

import attrs

from comparative_benchmark.backend_api import (
    BackendInfo,
    CompilerInfo,
    Level,
    UnknownBackendError,
    backends,
    get_backend,
)
from comparative_benchmark.harness import quantized_verification
from comparative_benchmark.harness.environments import Environment
from comparative_benchmark.harness.published_program import Program
from comparative_benchmark.harness.verification import Verification
from openxla.benchmark.artifacts.workload_cost import WorkloadCost
from openxla.benchmark.def_types import BenchmarkCase, DeviceSpec, ModelFrameworkType, Workload

# What `--backend` calls all backends that are installed.
ALL_BACKENDS = "all"

# Case, competitor, device.
TrialKey = tuple[str, str, str]


class Status(enum.Enum):
    """How a trial ended; each but `ok` comes with a phase and evidence."""

    OK = "ok"
    UNSTEADY = "unsteady"
    WRONG_OUTPUT = "wrong_output"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    CRASHED = "crashed"


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


@attrs.frozen(kw_only=True)
class Trial:
    """One case by one competitor on one device.

    `program` is the published program that it starts from, None where the backend exports.
    """

    case: BenchmarkCase
    workload: Workload
    competitor: Competitor
    device: DeviceSpec
    program: Program | None = attrs.field(default=None, eq=False)

    @property
    def key(self) -> TrialKey:
        """What tells it from other trials of a run; `--resume` goes by it."""
        return (self.case.name, str(self.competitor), self.device.name)

    @property
    def precision(self) -> str | None:
        """What it computes in: the data type, unless the compiler or the case quantises."""
        return self.competitor.compiler.precision or self.workload.data_type or self.case.data_type

    @property
    def verify_parameters(self) -> dict[str, float]:
        """Those of the case, with the limits of a quantised precision."""
        return quantized_verification.parameters_for(
            self.competitor.compiler.precision,
            self.workload.data_type,
            self.case.verify_parameters,
        )

    def __str__(self) -> str:
        return f"{self.case.model.name} {self.competitor}"


@attrs.frozen(kw_only=True)
class GenerationTimes:
    """Prefill and decode of a generating model, measured apart in one process.

    Attributes:
      prefill_ms: from the start of a prefill to the first new tokens, one for each prefill.
      decode_ms: of each step, which gives one token to every sequence.
      reason: why there are no times; None if there are.
      verification: of the tokens and logits that the two give together.
      phases: of the worker, theirs among them.
    """

    prefill_ms: list[float] = attrs.field(factory=list)
    decode_ms: list[float] = attrs.field(factory=list)
    reason: str | None = None
    verification: Verification | None = None
    phases: dict[str, dict[str, Any]] = attrs.field(factory=dict)


@attrs.define(kw_only=True)
class ProcessRecord:
    """What one worker process gave.

    Attributes:
      status, phase, reason, traceback: how it ended; `phase` and the rest unless it is `ok`.
      log_file: what the worker printed.
      cold: whether it compiled with empty caches.
      stop_reason: why it was measured for no more rounds.
      timer_ns: smallest step of the worker's clock.
      phases: time and peak memory by phase, as the worker reported.
      verification: of the first run; `final_verification`: of the last timed output.
      steadiness: of the warm-up, with the evidence; None where counts were fixed.
      blocks: samples, see `sampling.Block`, each with its round.
      generation: of a model that generates, its parts; None if they were not measured.
      facts: see `backend_api.BackendFacts`.
      versions: of the packages that the worker had imported.
    """

    status: Status = Status.OK
    phase: str | None = None
    reason: str | None = None
    traceback: str | None = None
    log_file: str = ""
    cold: bool = False
    stop_reason: str | None = None
    timer_ns: float | None = None
    phases: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    host_memory_peak_bytes: int | None = None
    verification: Verification | None = None
    final_verification: Verification | None = None
    steadiness: dict[str, Any] | None = None
    warmup_latencies_ms: list[float] = attrs.field(factory=list)
    blocks: list[dict[str, Any]] = attrs.field(factory=list)
    generation: GenerationTimes | None = None
    facts: dict[str, Any] = attrs.field(factory=dict)
    versions: dict[str, str] = attrs.field(factory=dict)

    @property
    def latencies_ms(self) -> list[float]:
        """All samples in order."""
        return [value for block in self.blocks for value in block["latencies_ms"]]


@attrs.define(kw_only=True)
class TrialOutcome:
    """All that is known when a trial has ended: the records of its processes, and how it ended.

    `artifact_source` is the publication that inputs and truth were fetched from, None if they were
    made here; `program_source` the published program that it started from, if it did.
    """

    processes: list[ProcessRecord] = attrs.field(factory=list)
    artifact_digests: dict[str, str] = attrs.field(factory=dict)
    artifact_source: dict[str, str] | None = None
    program_source: dict[str, Any] | None = None
    workload_cost: WorkloadCost = attrs.field(factory=WorkloadCost)
    race: dict[str, Any] = attrs.field(factory=dict)
    profile: dict[str, Any] | None = None
    timeline: str | None = None
    stop_reason: str | None = None
    wall_s: float = 0.0

    def add(self, record: ProcessRecord) -> None:
        """Adds the record of a process that has ended."""
        self.processes.append(record)

    @property
    def ended_by(self) -> ProcessRecord | None:
        """The process that ended the trial early."""
        return next((p for p in self.processes if p.status is not Status.OK), None)

    @property
    def ended(self) -> bool:
        """Whether a process has failed, so that no further one is worth its time."""
        return self.ended_by is not None

    @property
    def status(self) -> Status:
        """That of the process that ended the trial early, else `ok`."""
        return self.ended_by.status if self.ended_by else Status.OK


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
        name, _, compiler = item.partition(":")
        compilers = [compiler] if compiler else []
        for competitor in competitors_of(get_backend(name), compilers, accelerator):
            found[str(competitor)] = competitor
    if not found:
        raise UnknownBackendError(f"no backend given; choices are {', '.join(backends())}")
    return list(found.values())


def installed_competitors(
    accelerator: str, *, variants: bool = True
) -> tuple[list[Competitor], dict[str, str]]:
    """Returns the usual competitors of all installed backends, and of the others how to get them.

    A backend counts as installed when it can run models of one framework at least.

    Args:
      accelerator: type of the device.
      variants: with those that are another setting of a compiler that is there, too.
    """
    installed: list[Competitor] = []
    absent: dict[str, str] = {}
    for backend in backends().values():
        missing = {framework: backend.missing_modules(framework) for framework in backend.modules}
        if all(missing.values()):
            names = sorted({name for found in missing.values() for name in found})
            absent[backend.name] = f"{', '.join(names)} not installed; run {backend.install}"
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
            known = ", ".join(compiler.options) or "none"
            raise UnknownBackendError(
                f"{backend.name}:{name} has no option {option!r}; choices are {known}"
            )
    return Competitor(backend=backend, compiler=compiler, options=tuple(sorted(set(options))))
