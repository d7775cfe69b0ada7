"""Results as everyone sees them: the worker's side, the file, and every reader.

A file holds a `Document`: runs, and results (`Result`), each of which belongs to a run. The file's
JSON is a superset of the OpenXLA suite's, so a result has the nesting of that one:

{"definition": {...}, "status": ..., "metrics": {"framework_level" | "compiler_level": {...}}}

Every class says what is valid; `codec` decodes, encodes and writes the JSON Schema by msgspec.
What a field lacks in older files has a default. Times are in milliseconds unless the name says
otherwise.
"""

import datetime
import enum
from typing import Annotated, Any, Literal, TypeAlias

import attrs
from msgspec import UNSET, Meta, UnsetType

from comparative_benchmark.analysis.machine.conditions import Conditions
from comparative_benchmark.analysis.machine.effective import EffectiveSettings
from comparative_benchmark.analysis.stats.steadiness import Steadiness
from comparative_benchmark.analysis.verification.accuracy import Accuracy
from comparative_benchmark.analysis.verification.verification import Verification
from comparative_benchmark.backends.api import OutputMode
from comparative_benchmark.backends.missing_packages import Absence
from openxla.benchmark.artifacts.workload_store import TruthCheck, TruthSource, WorkloadCost
from openxla.benchmark.def_types import Scalar

SCHEMA_VERSION = 1
NOT_MEASURABLE: Literal["not_measurable"] = "not_measurable"
# What people read in place of `ok` where there is no float64 truth; see `Result.word`.
AGREED = "agreed"
# What `stop_reason` says of a result without latencies.
COMPILE_ONLY = "compile_only"
# And of one that had a fixed number of iterations, in one process.
FIXED = "fixed"

# What every result has that is ok, unless nothing but compile times was wanted.
MEASURED = (
    *("warmup_iterations", "benchmark_iterations", "latencies_ms", "warmup_latencies_ms"),
    *("dispatch_ms", "device_latencies_ms", "cpu_wall_ratio"),
    *(f"{name}_latency_ms" for name in ("min", "max", "mean", "median", "stddev", "mad")),
)

# Anything larger is not a measurement; infinity is not JSON.
_LARGEST = 1e300
NonNegative = Annotated[float, Meta(ge=0, le=_LARGEST)]
Positive = Annotated[float, Meta(gt=0, le=_LARGEST)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Text = Annotated[str, Meta(min_length=1)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Samples = tuple[NonNegative, ...]
Level: TypeAlias = Literal["framework_level", "compiler_level"]

# Case, competitor, device.
ResultKey = tuple[str, str, str]


class Status(enum.Enum):
    """How a trial ended; each but `ok` comes with a phase and evidence.

    Attributes:
      OK: its output is right before and after timing, and its speed is steady.
      UNSTEADY: its output is right, and its latencies drift too much for a speed.
      WRONG_OUTPUT: its output is not that of the float64 run; it has no speed.
      UNSUPPORTED: the stack cannot run this case here, for a reason that is given.
      FAILED: an error, with the traceback.
      OUT_OF_MEMORY: it needed more memory than there is, or than `--memory-limit` allows.
      TIMEOUT: a phase took longer than its deadline.
      CRASHED: its worker process died, e.g. of a signal.
    """

    OK = "ok"
    UNSTEADY = "unsteady"
    WRONG_OUTPUT = "wrong_output"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    CRASHED = "crashed"


@attrs.frozen(kw_only=True)
class Phase:
    """What one phase of a worker took.

    Attributes:
      host_memory_peak_bytes: of the process until the phase ended.
    """

    ms: NonNegative
    host_memory_peak_bytes: Count | None


@attrs.frozen(kw_only=True)
class Block:
    """Consecutive iterations of one process in one round of a race.

    Attributes:
      round: counted over the race; None in files that have no rounds.
      latencies_ms: start of dispatch to completed outputs, host clock.
      dispatch_ms: the part of it until the call returned to the host.
      device_ms: by the device's own clock, of further iterations right after these.
      cpu_ms, wall_ms: CPU time of the process, and wall time, over the whole block.
      cpu_wall_ratio: CPU time over wall time; n threads that never wait give n.
      contended: whether others disturbed it; None where that cannot be told.
      conditions: what the machine did meanwhile.
      void: why it counts for nothing; None where it counts.
    """

    round: int | None = None
    latencies_ms: Annotated[Samples, Meta(min_length=1)]
    dispatch_ms: Samples = ()
    device_ms: Samples = ()
    cpu_ms: NonNegative | None = None
    wall_ms: NonNegative | None = None
    cpu_wall_ratio: NonNegative | None = None
    contended: bool | None = None
    conditions: Conditions | None = None
    void: str | None = None


@attrs.frozen(kw_only=True)
class Process:
    """One worker process of a trial: what it measured.

    Attributes:
      void_blocks: measured while the GPU's clock was down; they count for nothing.
      stop_reason: why it was measured for no more rounds.
      timer_ns: smallest step of its clock.
      steadiness: of the warm-up, with the evidence; None where counts were fixed.
      host_memory_base_mb: resident before the model came; of a worker that had served others, what
        they have left is in it. None where the peak is not that of this model alone.
      effective: threads, denormals, allocator and the like; None in files that do not tell.
    """

    blocks: tuple[Block, ...] = ()
    void_blocks: tuple[Block, ...] = ()
    warmup_iterations: Count = 0
    stop_reason: str | None = None
    timer_ns: NonNegative | None = None
    steadiness: Steadiness | None = None
    compile_time_ms: NonNegative | None = None
    artifact_sha256: Sha256 | None = None
    cache_hits: Count | None = None
    cache_misses: Count | None = None
    host_memory_peak_mb: NonNegative | None = None
    host_memory_base_mb: NonNegative | None = None
    effective: EffectiveSettings | None = None

    @property
    def latencies_ms(self) -> list[float]:
        """All samples in order."""
        return [value for block in self.blocks for value in block.latencies_ms]


@attrs.frozen(kw_only=True)
class CompileProcess:
    """What compiling took in one process; None where the stack cannot tell."""

    cold: bool
    trace_ms: NonNegative | None = None
    lower_ms: NonNegative | None = None
    compile_ms: NonNegative | None = None
    cache_hits: Count | None = None
    cache_misses: Count | None = None
    artifact_sha256: Sha256 | None = None
    artifact_size_bytes: Count | None = None


@attrs.frozen(kw_only=True)
class Compile:
    """Compile times with empty caches (cold), and with those that another process left (warm)."""

    cold_ms: tuple[NonNegative | None, ...]
    warm_ms: tuple[NonNegative | None, ...]
    processes: tuple[CompileProcess, ...] = ()


@attrs.frozen(kw_only=True)
class IntervalRecord:
    """A confidence interval."""

    low: NonNegative
    high: NonNegative
    level: Annotated[float, Meta(gt=0, lt=1)]
    processes: Annotated[int, Meta(ge=2)]


@attrs.frozen(kw_only=True)
class GenerationProcess:
    """Samples of prefill and decode of one process."""

    prefill_ms: tuple[Positive, ...]
    decode_ms: tuple[Positive, ...]


@attrs.frozen(kw_only=True)
class Generation:
    """A model that generates: first tokens, further tokens, tokens per second.

    Attributes:
      tokens_per_s: all new tokens of the batch over the latency of the whole generation.
      prefill_ms: time to the first new tokens.
      decode_ms_per_token: of a step, which gives one token to every sequence.
      not_measurable: why prefill and decode have no times of their own; None if they have.
    """

    batch_size: Annotated[int, Meta(ge=1)]
    prompt_tokens: Annotated[int, Meta(ge=1)]
    new_tokens: Annotated[int, Meta(ge=1)]
    tokens_per_s: Positive | None
    tokens_per_s_interval: IntervalRecord | None = None
    prefill_ms: Positive | None
    prefill_ms_interval: IntervalRecord | None = None
    decode_ms_per_token: Positive | None
    decode_ms_per_token_interval: IntervalRecord | None = None
    not_measurable: str | None
    processes: tuple[GenerationProcess, ...]
    verification: Verification | None = None


@attrs.frozen(kw_only=True)
class StepTimes:
    """Parts of a training step, measured apart from the steps in one process.

    Attributes:
      how: whether a step is made of these `calls`, or these are `programs` beside that of a step.
      forward_ms: samples of the loss.
      backward_ms: of the gradients alone, where these can be had apart.
      forward_backward_ms: of loss and gradients, where they cannot.
      update_ms: of the optimizer, and of the gradient's norm.
    """

    how: Literal["calls", "programs"]
    forward_ms: tuple[Positive, ...]
    backward_ms: tuple[Positive, ...] = ()
    forward_backward_ms: tuple[Positive, ...] = ()
    update_ms: tuple[Positive, ...]


@attrs.frozen(kw_only=True)
class Training:
    """Training steps: an iteration is one of them.

    Attributes:
      optimizer: that updates the weights.
      verified_steps: how many steps are verified together.
      samples_per_s: rows of the batch over the latency of a step; None unless ok.
      tokens_per_s: of texts, the tokens of the batch, padding among them; None of pictures.
      forward_ms, backward_ms, forward_backward_ms, update_ms: means over the processes of the
        medians of `processes`; None where there are none.
      optimizer_share: the update's part in the sum of what a step is made of.
      parts_not_measurable: why there are no parts; None if there are.
      update_error: of an update of the optimizer by itself, from moments as after many steps, as a
        share of what is allowed; None if it was not run, or above what a file can hold.
      without_update_check: why it was not run; None if it was, or before there was such a check.
    """

    optimizer: Text
    batch_size: Annotated[int, Meta(ge=1)]
    verified_steps: Annotated[int, Meta(ge=1)]
    samples_per_s: Positive | None
    samples_per_s_interval: IntervalRecord | None = None
    tokens_per_s: Positive | None
    tokens_per_s_interval: IntervalRecord | None = None
    forward_ms: Positive | None = None
    backward_ms: Positive | None = None
    forward_backward_ms: Positive | None = None
    update_ms: Positive | None = None
    optimizer_share: Positive | None = None
    parts_not_measurable: Text | None = None
    update_error: NonNegative | None = None
    without_update_check: Text | None = None
    processes: tuple[StepTimes, ...] = ()


@attrs.frozen(kw_only=True)
class Program:
    """What a backend tells about the program that it made; see `backends.api.BackendFacts`."""

    weights: Literal["arguments", "parameters", "frozen"] | None = None
    outputs: OutputMode | None = None
    not_measurable: tuple[str, ...] = ()
    flops: NonNegative | None = None
    bytes_accessed: NonNegative | None = None
    artifact_sha256: Sha256 | None = None
    artifact_size_bytes: Count | None = None
    cache_hits: Count | None = None
    cache_misses: Count | None = None
    device_memory_peak_bytes: Count | None = None
    device_name: str | None = None
    notes: dict[str, Any] = attrs.field(factory=dict)

    @property
    def tf32(self) -> bool:
        """Whether factors of float32 may have been rounded to TF32."""
        return self.notes.get("tf32") is True


@attrs.frozen(kw_only=True)
class ArtifactSource:
    """The publication that inputs and truth were fetched from."""

    model: str
    url: str
    manifest_sha256: Sha256


@attrs.frozen(kw_only=True)
class ProgramSource:
    """The published program that a trial started from."""

    model: str
    url: str
    manifest_sha256: Sha256
    types: tuple[str, ...]
    digests: dict[str, Sha256]


@attrs.frozen(kw_only=True)
class RaceNote:
    """How a trial was interleaved with its rivals.

    Attributes:
      id: shared by the trials of a race whose rounds may be paired; None where they may not.
      shared_workers: whether its processes had measured other workloads before.
      decidable: relative difference to the baseline that nine of ten such races find, as said after
        the first processes; None if these told nothing, or lay further apart than that.
    """

    interleaved: bool = True
    seed: int | None = None
    id: str | None = None
    shared_workers: bool = False
    decidable: float | None = None


@attrs.frozen(kw_only=True)
class Contention:
    """What others took of CPUs and GPU over all blocks together; counts are of single blocks.

    Attributes:
      contended: None where even together the blocks are too short to tell.
    """

    contended_blocks: Count = 0
    clean_blocks: Count = 0
    not_judged_blocks: Count = 0
    contended: bool | None = None
    reasons: tuple[str, ...] = ()
    foreign_cpu_share: NonNegative | None = None
    steal_share: NonNegative | None = None


@attrs.frozen(kw_only=True)
class Outliers:
    """Samples beyond 1.5 (mild) and 3 (severe) quartile ranges of their process; none dropped."""

    mild: Count
    severe: Count


@attrs.frozen(kw_only=True)
class ThroughputProcess:
    """What a script told of its speed in one process, or in several that ran at once.

    Attributes:
      replicate: counted over the run; processes of one replicate ran at the same time.
      tag: name of the process.
      status: how it ended; `reason` says why where it is not `ok`.
      rates: all, in the order in which the script told them.
      warmup: how many of the first are warm-up, which count for nothing.
      steadiness: of the others; None where there were too few for the test.
      losses: first and last.
      peaks of memory: of the process and all its children; of all devices together.
      device_use: mean load of the devices, from 0 to 1.
      foreign_cpu_share: CPU time that others took, of the time that its CPUs had.
      notes: what did not make sense, or was odd.
    """

    replicate: Count
    tag: Text
    status: Status
    reason: str | None = None
    devices: tuple[str, ...] = ()
    cpus: tuple[Count, ...] = ()
    rates: tuple[Positive, ...] = ()
    warmup: Count = 0
    steadiness: Steadiness | None = None
    losses: tuple[float, ...] = ()
    wall_s: NonNegative = 0.0
    cpu_s: NonNegative = 0.0
    involuntary_switches: Count = 0
    foreign_cpu_share: NonNegative | None = None
    host_memory_peak_mb: NonNegative | None = None
    device_memory_peak_mb: NonNegative | None = None
    device_use: NonNegative | None = None
    notes: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class OneAlone:
    """One of several processes alone, on the CPUs that it has beside the others.

    Attributes:
      rate: mean over replicates.
      share: of that rate which a process keeps while all run at once, with its interval over
        replicates: what they take from each other.
    """

    rate: Positive
    share: Positive
    share_interval: IntervalRecord | None = None
    processes: tuple[ThroughputProcess, ...] = ()


@attrs.frozen(kw_only=True)
class Throughput:
    """A script that measured itself and told rates, as milabench's benchmarks do.

    The `latencies_ms` of such a result are milliseconds for one unit of work, 1000 / rate, so that
    ratios and verdicts are those of any other result. No truth is known of a foreign script: there
    is no verification, and a loss that is not a number makes the output wrong.

    Attributes:
      units: of the rates, e.g. `items/s`.
      rate: of all processes of a replicate together, mean over replicates; None unless ok.
      weight: in a score over many benchmarks.
      alone: None unless it was asked for, and one process ran alone as it should.
    """

    units: Text
    rate: Positive | None
    rate_interval: IntervalRecord | None = None
    weight: NonNegative = 1.0
    processes: tuple[ThroughputProcess, ...] = ()
    alone: OneAlone | None = None


_Optional = NonNegative | UnsetType
_MaybeNone = NonNegative | UnsetType | None


@attrs.frozen(kw_only=True)
class Metrics:
    """All numbers of a result; what a result of its kind does not have is not in the file.

    Attributes:
      error: how it ended, where the OpenXLA suite's readers look for it; of `ok` results unset.
      device_latencies_ms: by the device's own clock, of further iterations after those of each
        block: fewer than `latencies_ms`, and not the same ones.
      compile_time_ms: of the first, cold process; `phases` likewise.
      stop_reason: why sampling stopped; `compile_only` where there was none.
      verification: of the first run; `final_verification`: of the last timed output.
      second_verification: of a run of the same program on a second input, after the timed part;
        None where there was none, and unset before the suite had any.
      without_second: the reason if it was not run, or the outputs that it does not verify.
      without_fresh_runs: why no run on inputs that the program had not seen was timed; unset if one
        was, or before there were such runs.
      without_float64: why the truth is not a float64 run but one in the model's own type; unset if
        it is.
      truth_source: who computed the truth; unset if it was published, or before this was recorded.
      not_ranked: why it is in no ranking and no ratio although it is ok; unset if it may be.
      truth_check: how the truth was checked by a second implementation; unset if it was not.
      recipe_sqnr_db: signal-to-quantisation-noise ratio of a plain run that rounds what the recipe
        rounds, from which the least ratio follows; unset if that is the recipe's constant.
      truth_not_isolated: why workers could see the files that their outputs were judged by; unset
        if they could not, or before this was recorded.
      accuracy: at what its model was trained for; unset where it was not trained.
      variables: of the workers' environment, those that can change speed or numbers; unset before
        they were recorded.
      training: of training steps; of others unset.
      throughput: of a script that told rates; of others unset.
    """

    min_latency_ms: _Optional = UNSET
    max_latency_ms: _Optional = UNSET
    mean_latency_ms: _Optional = UNSET
    median_latency_ms: _Optional = UNSET
    stddev_latency_ms: _MaybeNone = UNSET
    mad_latency_ms: _Optional = UNSET
    p90_latency_ms: _Optional = UNSET
    p95_latency_ms: _Optional = UNSET
    p99_latency_ms: _Optional = UNSET
    min_warmup_latency_ms: _Optional = UNSET
    max_warmup_latency_ms: _Optional = UNSET
    mean_warmup_latency_ms: _Optional = UNSET
    median_warmup_latency_ms: _Optional = UNSET
    stddev_warmup_latency_ms: _MaybeNone = UNSET
    mad_warmup_latency_ms: _Optional = UNSET
    p90_warmup_latency_ms: _Optional = UNSET
    p95_warmup_latency_ms: _Optional = UNSET
    p99_warmup_latency_ms: _Optional = UNSET
    warmup_iterations: Count | UnsetType = UNSET
    benchmark_iterations: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    latencies_ms: Annotated[Samples, Meta(min_length=1)] | UnsetType = UNSET
    warmup_latencies_ms: Samples | UnsetType = UNSET
    dispatch_ms: Samples | UnsetType = UNSET
    device_latencies_ms: Samples | UnsetType = UNSET
    contention: Contention | UnsetType = UNSET
    outliers: Outliers | UnsetType = UNSET
    cpu_wall_ratio: _MaybeNone = UNSET
    processes: tuple[Process, ...] | UnsetType = UNSET
    error: str | UnsetType = UNSET
    compile_time_ms: NonNegative | None
    warm_compile_time_ms: tuple[NonNegative, ...] = ()
    compile: Compile | UnsetType = UNSET
    input_data_transfer_ms: NonNegative | None
    output_data_transfer_ms: NonNegative | None
    autotuning_enabled: bool | None
    device_memory_peak_mb: NonNegative | None
    host_memory_peak_mb: NonNegative | None
    phases: dict[str, Phase | Literal["not_measurable"]]
    verification: Verification | None
    final_verification: Verification | None
    second_verification: Verification | UnsetType | None = UNSET
    without_second: str | UnsetType = UNSET
    without_fresh_runs: str | UnsetType = UNSET
    without_float64: str | UnsetType = UNSET
    truth_source: TruthSource | UnsetType = UNSET
    not_ranked: str | UnsetType = UNSET
    truth_check: TruthCheck | UnsetType = UNSET
    recipe_sqnr_db: float | UnsetType = UNSET
    truth_not_isolated: str | UnsetType = UNSET
    accuracy: Accuracy | UnsetType = UNSET
    variables: dict[str, str] | UnsetType = UNSET
    program: Program
    workload_cost: WorkloadCost = attrs.field(factory=WorkloadCost)
    artifact_digests: dict[str, Sha256]
    artifact_source: ArtifactSource | None = None
    program_source: ProgramSource | None = None
    race: RaceNote = attrs.field(factory=RaceNote)
    stop_reason: str | None = None
    generation: Generation | UnsetType = UNSET
    training: Training | UnsetType = UNSET
    throughput: Throughput | UnsetType = UNSET

    @property
    def median_ms(self) -> float | None:
        """Median of all latencies; None where there are none."""
        return self.median_latency_ms or None

    @property
    def verdict(self) -> Verification | None:
        """The last verification that there was."""
        return self.final_verification or self.verification

    @property
    def truth_in_doubt(self) -> bool:
        """Whether two implementations gave different truths."""
        return bool(self.truth_check and self.truth_check.in_doubt)

    @property
    def judged_on_integers(self) -> bool:
        """Whether no floating-point number was compared, so that no precision is proved."""
        return self.verdict is not None and self.verdict.judged == "integers"

    @property
    def compile_only(self) -> bool:
        """Whether nothing but compile times was wanted."""
        return self.stop_reason == COMPILE_ONLY


@attrs.frozen(kw_only=True)
class Levels:
    """The metrics of a result under the name of what they are of."""

    framework_level: Metrics | UnsetType = UNSET
    compiler_level: Metrics | UnsetType = UNSET

    def __attrs_post_init__(self) -> None:
        if bool(self.framework_level) == bool(self.compiler_level):
            raise ValueError("expected either framework_level or compiler_level")


@attrs.frozen(kw_only=True)
class WorkloadRecord:
    """What models of different frameworks have in common; see `openxla.benchmark.workloads`."""

    id: Text
    digest: Sha256
    label: Text
    architecture: str
    config_digest: Sha256
    checkpoint: str
    data_type: str | None
    inputs: tuple[str, ...]
    input_digest: Sha256


@attrs.frozen(kw_only=True)
class EnvironmentName:
    """The Python environment that a trial ran in, where it was not the suite's own."""

    name: Text
    python: str = ""


@attrs.frozen(kw_only=True)
class Definition:
    """What was run.

    Attributes:
      framework: the enumeration's name, e.g. `ModelFrameworkType.JAX`.
      precision: what was computed in: the data type, or what a compiler quantises to.
      compiler: with its options, e.g. `inductor+freezing`.
      input_source: directory of the arrays that the user gave as inputs.
      outputs: how outputs were to be held, by `--outputs`; None for the stack's own way. What was
        done is in `Program.outputs`.
    """

    benchmark_name: Text
    framework: Annotated[str, Meta(pattern=r"^ModelFrameworkType\.[A-Z0-9_]+$")]
    data_type: str | None
    precision: str | None = None
    batch_size: Count | None
    compiler: Text
    device: Text
    tags: tuple[str, ...]
    backend: Text
    level: Level
    options: tuple[str, ...]
    environment: EnvironmentName | None = None
    model: Text
    model_parameters: dict[str, Scalar | tuple[Scalar, ...]]
    verify_parameters: dict[str, NonNegative]
    input_data: Text
    input_source: str | None = None
    outputs: OutputMode | None = None
    workload: WorkloadRecord

    @property
    def competitor(self) -> str:
        """As `str(Competitor)` has it: `backend:compiler`, with `@name` of an environment."""
        where = f"@{self.environment.name}" if self.environment else ""
        return f"{self.backend}:{self.compiler}{where}"

    @property
    def framework_name(self) -> str:
        """Framework of the model, in lower case."""
        return self.framework.rpartition(".")[2].lower()


@attrs.frozen(kw_only=True)
class ProfileRecord:
    """What the profiler of a stack gave; see `run.profiling.Profile`."""

    directory: str = ""
    files: tuple[str, ...] = ()
    iterations: int | None = None
    error: str | None = None


@attrs.frozen(kw_only=True)
class Result:
    """One trial: a case by one competitor on one device, and how it came out.

    Attributes:
      absence: the modules that are not installed, if it was not tried for that.
    """

    run_id: Text
    definition: Definition
    status: Status
    metrics: Levels
    wall_s: NonNegative
    log_file: str | None
    versions: dict[str, str]
    profile: ProfileRecord | UnsetType = UNSET
    timeline: str | UnsetType = UNSET
    phase: str | UnsetType | None = UNSET
    reason: str | UnsetType | None = UNSET
    traceback: str | UnsetType | None = UNSET
    absence: Absence | UnsetType = UNSET

    def __attrs_post_init__(self) -> None:
        found = self.measured
        if self.status is Status.OK:
            if found.error is not UNSET:
                raise ValueError("an ok result must not have an error")
            if found.compile_only:
                if found.compile is UNSET or found.median_latency_ms is not UNSET:
                    raise ValueError("a compile-only result must have compile times and no latency")
            elif lacking := [name for name in MEASURED if getattr(found, name) is UNSET]:
                raise ValueError(f"an ok result must have {lacking[0]}")
            elif found.throughput is not UNSET:
                if found.throughput.rate is None:
                    raise ValueError("an ok result of a script must have a rate")
            elif found.verification is None or found.final_verification is None:
                raise ValueError("an ok result must have verification and final_verification")
        elif not self.phase or not self.reason:
            raise ValueError(f"a result with status {self.status.value} must have phase and reason")
        elif found.error is UNSET:
            raise ValueError(f"a result with status {self.status.value} must have an error")
        elif found.median_latency_ms is not UNSET or found.latencies_ms is not UNSET:
            raise ValueError(f"a result with status {self.status.value} must not have latencies")

    @property
    def level(self) -> Level:
        """What was measured."""
        return "framework_level" if self.metrics.framework_level else "compiler_level"

    @property
    def measured(self) -> Metrics:
        """The metrics, whatever their level."""
        found = self.metrics.framework_level or self.metrics.compiler_level
        assert isinstance(found, Metrics)
        return found

    @property
    def word(self) -> str:
        """How it ended, in a word for people: its status, or `AGREED`.

        Agreed is what is ok, and was judged by a plain run in the program's own type: that the two
        agree is all that is known.
        """
        if self.status is Status.OK and self.measured.without_float64 is not UNSET:
            return AGREED
        return self.status.value

    @property
    def ranked(self) -> bool:
        """Whether its speed may be compared with other results."""
        return self.status is Status.OK and self.measured.not_ranked is UNSET

    @property
    def key(self) -> ResultKey:
        """What tells it from others, as `Trial.key` does."""
        return (self.definition.benchmark_name, self.definition.competitor, self.definition.device)


@attrs.frozen(kw_only=True)
class Package:
    """An installed package."""

    name: str
    version: str


@attrs.frozen(kw_only=True)
class Host:
    """A machine, as `analysis.machine.host.describe` tells of it.

    Attributes:
      threads_from: the rule that gave `threads`; None in files that do not tell.
    """

    cpu_model: str | None
    architecture: str
    logical_cpus: Count | None
    physical_cpus: Count | None
    usable_cpus: Annotated[int, Meta(ge=1)]
    pinned_cpus: tuple[Count, ...] = ()
    threads: Annotated[int, Meta(ge=1)]
    threads_from: str | None = None
    governor: str | None
    memory_bytes: Count
    memory_available_bytes: Count
    load_average: Annotated[tuple[NonNegative, ...], Meta(min_length=3, max_length=3)]
    system: str
    python: str
    hostname: str


@attrs.frozen(kw_only=True)
class OtherEnvironment:
    """What is installed in an environment that trials ran in (`--env`)."""

    python: str = ""
    python_version: str = ""
    python_environment: tuple[Package, ...] = ()


@attrs.frozen(kw_only=True)
class ExecutionEnvironment:
    """Where a run took place."""

    python_environment: tuple[Package, ...]
    host: Host
    git_revision: str | None
    environments: dict[str, OtherEnvironment] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Trigger:
    """When a run began, and by which command."""

    timestamp: Annotated[
        str,
        Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"),
    ]
    command: tuple[str, ...]

    def __attrs_post_init__(self) -> None:
        datetime.datetime.fromisoformat(self.timestamp)

    @property
    def time(self) -> datetime.datetime:
        """With its zone."""
        return datetime.datetime.fromisoformat(self.timestamp)


@attrs.frozen(kw_only=True)
class Run:
    """One command that measured."""

    run_id: Text
    trigger: Trigger
    execution_environment: ExecutionEnvironment


@attrs.frozen(kw_only=True)
class Document:
    """A results file: any number of runs and their results.

    `trigger` and `execution_environment` are of the latest run: the OpenXLA suite knew one a file.
    """

    schema_version: Literal[1]
    trigger: Trigger
    execution_environment: ExecutionEnvironment
    runs: Annotated[tuple[Run, ...], Meta(min_length=1)]
    benchmarks: tuple[Result, ...]
