"""Records of results, shared by workers, the results file and its readers.

A file contains a `Document`: runs, and results (`Result`) that each belong to a run. The JSON is
a superset of the OpenXLA suite's format, so results are nested in the same way:

{"definition": {...}, "status": ..., "metrics": {"framework_level" | "compiler_level": {...}}}

Each class defines its valid values; `codec` decodes, encodes and generates the JSON Schema with
msgspec. Fields that older files lack have defaults. Times are in milliseconds unless the name gives
another unit.
"""

import datetime
import enum
from typing import Annotated, Any, Literal, TypeAlias

import attrs
from msgspec import UNSET, Meta, UnsetType

from comparative_benchmark.analysis.machine.conditions import Conditions
from comparative_benchmark.analysis.machine.worker_settings import EffectiveSettings
from comparative_benchmark.analysis.stats.steadiness import Steadiness
from comparative_benchmark.analysis.verification.accuracy import Accuracy
from comparative_benchmark.analysis.verification.verification import Verification
from comparative_benchmark.backends.api import OutputMode
from comparative_benchmark.backends.missing_packages import Absence
from comparative_benchmark.results.fleet import Allocation
from openxla.benchmark.artifacts.workload_store import TruthCheck, TruthSource, WorkloadCost
from openxla.benchmark.def_types import Scalar

SCHEMA_VERSION = 1
NOT_MEASURABLE: Literal["not_measurable"] = "not_measurable"
# Displayed instead of `ok` without a float64 truth; see `Result.word`.
AGREED = "agreed"
# `stop_reason` of a result without latencies.
COMPILE_ONLY = "compile_only"
# `stop_reason` of a result with a fixed number of iterations in one process.
FIXED = "fixed"

# Metrics that every `ok` result has, unless it is compile-only.
MEASURED = (
    *("warmup_iterations", "benchmark_iterations", "latencies_ms", "warmup_latencies_ms"),
    *("dispatch_ms", "device_latencies_ms", "cpu_wall_ratio"),
    *(f"{name}_latency_ms" for name in ("min", "max", "mean", "median", "stddev", "mad")),
)

# Larger values cannot be measurements, and JSON has no infinity.
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
    """How a trial ended; every status except `ok` comes with a phase and a reason.

    Attributes:
      OK: the output is correct before and after timing, and latencies are steady.
      UNSTEADY: the output is correct, but latencies drift too much for a speed to be reported.
      WRONG_OUTPUT: the output differs too much from the float64 run's; no speed is reported.
      UNSUPPORTED: the stack cannot run this case here; the reason is recorded.
      FAILED: an error occurred; the traceback is recorded.
      OUT_OF_MEMORY: the trial needed more memory than the machine has or `--memory-limit` allows.
      TIMEOUT: a phase exceeded its deadline.
      CRASHED: the worker process died, e.g. from a signal.
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
    """Time and memory of one phase of a worker.

    Attributes:
      host_memory_peak_bytes: peak memory of the process up to the end of the phase.
    """

    ms: NonNegative
    host_memory_peak_bytes: Count | None


@attrs.frozen(kw_only=True)
class Block:
    """Consecutive iterations of one process in one round of a race.

    Attributes:
      round: number of the round within the race; None in files without rounds.
      latencies_ms: time from dispatch to completed outputs, by the host clock.
      dispatch_ms: the part of each latency before the call returned to the host.
      device_ms: device-clock times of additional iterations that directly followed these ones.
      cpu_ms, wall_ms: CPU time of the process, and wall time, over the whole block.
      cpu_wall_ratio: CPU time divided by wall time; n for n threads that never wait.
      contended: whether other processes disturbed the block; None if unknown.
      conditions: state of the machine during the block.
      void: why the block is excluded; None if it is valid.
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
    """Measurements of one worker process of a trial.

    Attributes:
      void_blocks: blocks excluded because the GPU clock was throttled.
      stop_reason: why no more rounds were measured.
      timer_ns: resolution of the worker's clock.
      steadiness: warm-up verdict with its evidence; None if iteration counts were fixed.
      host_memory_base_mb: resident memory before the model was loaded, including memory left by
        earlier models in a shared worker; None if this model alone did not determine the peak.
      effective: threads, denormals, allocator and similar settings; None if not recorded.
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
        """All samples, in order."""
        return [value for block in self.blocks for value in block.latencies_ms]


@attrs.frozen(kw_only=True)
class CompileProcess:
    """Compile times and cache use of one process; None for values the stack does not report."""

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
    """Compile times with empty caches (cold), and with caches left by another process (warm)."""

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
    """Prefill and decode samples of one process."""

    prefill_ms: tuple[Positive, ...]
    decode_ms: tuple[Positive, ...]


@attrs.frozen(kw_only=True)
class Generation:
    """Metrics of a generating model: time to first token, time per token, tokens per second.

    Attributes:
      tokens_per_s: new tokens in the batch, divided by the latency of the complete generation.
      prefill_ms: time to the first new tokens.
      decode_ms_per_token: time for a decode step, which yields one token per sequence.
      not_measurable: why prefill and decode have no separate times; None if they have.
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
    """Times for the parts of a training step, measured in one process, separately from whole steps.

    Attributes:
      how: `calls` if a step consists of these parts, `programs` if the parts are separate programs.
      forward_ms: times for the loss.
      backward_ms: times for the gradients, if these can be computed separately from the loss.
      forward_backward_ms: times for loss and gradients together, if they cannot be separated.
      update_ms: times for the optimizer update, including the gradient norm.
    """

    how: Literal["calls", "programs"]
    forward_ms: tuple[Positive, ...]
    backward_ms: tuple[Positive, ...] = ()
    forward_backward_ms: tuple[Positive, ...] = ()
    update_ms: tuple[Positive, ...]


@attrs.frozen(kw_only=True)
class Training:
    """Metrics of training; one iteration is one training step.

    Attributes:
      optimizer: the optimizer that updates the weights.
      verified_steps: number of steps that are verified together.
      samples_per_s: batch size divided by the latency of a step; None unless `ok`.
      tokens_per_s: for text models, tokens per second, including padding; None for other models.
      forward_ms, backward_ms, forward_backward_ms, update_ms: mean over `processes` of each
        process's median; None if not measured.
      optimizer_share: the update's share of the total time of a step's parts.
      parts_not_measurable: why the parts have no times; None if they have.
      update_error: error of a single optimizer update with moments from late in training, as a
        fraction of the tolerance; None if the check did not run or the error cannot be stored.
      without_update_check: why the update was not checked; None if it was, or in older files.
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
    """Facts reported by a backend about its program; see `backends.api.BackendFacts`."""

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
        """Whether float32 operands may have been rounded to TF32."""
        return self.notes.get("tf32") is True


@attrs.frozen(kw_only=True)
class ArtifactSource:
    """The published artifacts from which inputs and truth were fetched."""

    model: str
    url: str
    manifest_sha256: Sha256


@attrs.frozen(kw_only=True)
class ProgramSource:
    """The published program from which a trial started."""

    model: str
    url: str
    manifest_sha256: Sha256
    types: tuple[str, ...]
    digests: dict[str, Sha256]


@attrs.frozen(kw_only=True)
class RaceNote:
    """How a trial was interleaved with its competitors.

    Attributes:
      id: identifier that a race's trials share if their rounds can be paired; None if they cannot.
      shared_workers: whether the trial's processes had already measured other workloads.
      decidable: smallest relative difference from the baseline that nine in ten such races would
        detect, estimated after the first processes; None without an estimate, or if the observed
        difference exceeded it.
    """

    interleaved: bool = True
    seed: int | None = None
    id: str | None = None
    shared_workers: bool = False
    decidable: float | None = None


@attrs.frozen(kw_only=True)
class Contention:
    """CPU and GPU use by other processes during a trial; the counts are numbers of blocks.

    Attributes:
      contended: whether other processes disturbed the trial; None if the blocks are too short for a
        verdict, even together.
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
    """Samples over 1.5 (mild) or 3 (severe) interquartile ranges outside their process's quartiles.

    They are counted, but not removed.
    """

    mild: Count
    severe: Count


@attrs.frozen(kw_only=True)
class ThroughputProcess:
    """Rates that a script reported in one process, or in one of several concurrent processes.

    Attributes:
      replicate: number within the run; processes of one replicate ran concurrently.
      tag: name of the process.
      status: how the process ended; `reason` explains statuses other than `ok`.
      rates: all reported rates, in order.
      warmup: number of initial rates that are excluded as warm-up.
      steadiness: verdict on the remaining rates; None if there were too few for the test.
      losses: first and last loss.
      host_memory_peak_mb: peak memory of the process and its children.
      device_memory_peak_mb: combined peak memory of all devices.
      device_use: mean utilisation of the devices, from 0 to 1.
      foreign_cpu_share: fraction of time on the process's CPUs that other processes used.
      notes: invalid or unusual output from the script.
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
    """One of several processes run alone, on the same CPUs as in the concurrent run.

    Attributes:
      rate: mean over replicates.
      share: fraction of `rate` that a process retains when all run concurrently; it measures
        mutual interference. `share_interval` is its interval over replicates.
    """

    rate: Positive
    share: Positive
    share_interval: IntervalRecord | None = None
    processes: tuple[ThroughputProcess, ...] = ()


@attrs.frozen(kw_only=True)
class Throughput:
    """A script that measures itself and reports rates, as milabench's benchmarks do.

    The `latencies_ms` of such a result are milliseconds per unit of work, 1000 / rate, so ratios
    and verdicts work as for any other result. Scripts have no known truth and are not verified, but
    a loss that is not a finite number makes the result `wrong_output`.

    Attributes:
      units: unit of the rates, e.g. `items/s`.
      rate: combined rate of a replicate's processes, averaged over replicates; None unless `ok`.
      weight: weight of the benchmark in a score over many benchmarks.
      alone: results of one process run alone; None unless this was requested and succeeded.
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
    """All metrics of a result; metrics that do not apply are omitted from the file.

    Attributes:
      error: why the trial failed, in the field in which the OpenXLA suite stores it; unset if `ok`.
      device_latencies_ms: device-clock times of additional iterations after each block. There are
        fewer of these iterations than `latencies_ms`, and they are not included there.
      compile_time_ms: compile time of the first process, which starts cold.
      phases: time and memory of each phase of the first process.
      stop_reason: why sampling stopped; `compile_only` if nothing was sampled.
      verification: verdict on the first run's outputs.
      final_verification: verdict on the last timed outputs.
      second_verification: verdict on the same program's outputs for a second input, after timing;
        None without such a run, unset in older files.
      without_second: why the program did not run on a second input, or which outputs that run does
        not verify.
      without_fresh_runs: why no run on unseen inputs was timed; unset if one was, or in older
        files.
      without_float64: why the truth was computed in the model's own type; unset if it was
        computed in float64.
      truth_source: the backend that computed the truth; unset if the truth was published, or in
        older files.
      not_ranked: why an `ok` result is excluded from rankings and ratios; unset if it may be
        ranked.
      truth_check: cross-check of the truth by a second implementation; unset without one.
      recipe_sqnr_db: signal-to-quantisation-noise ratio of a plain run that rounds like the recipe,
        from which the required ratio is derived; unset if the recipe itself defines that ratio.
      truth_not_isolated: why workers could read the files that their outputs were verified against;
        unset if they could not, or in older files.
      accuracy: accuracy on the task that the model was trained for; unset if it was not trained.
      variables: the workers' environment variables that can change speed or numerical results;
        unset in older files.
      training: metrics of training steps; unset for other workloads.
      throughput: rates reported by a script; unset for other workloads.
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
        """Median of all latencies; None without latencies."""
        return self.median_latency_ms or None

    @property
    def verdict(self) -> Verification | None:
        """The last verification that was made."""
        return self.final_verification or self.verification

    @property
    def truth_in_doubt(self) -> bool:
        """Whether two implementations computed different truths."""
        return bool(self.truth_check and self.truth_check.in_doubt)

    @property
    def judged_on_integers(self) -> bool:
        """Whether only integers were compared, which proves nothing about precision."""
        return self.verdict is not None and self.verdict.judged == "integers"

    @property
    def compile_only(self) -> bool:
        """Whether only compile times were requested."""
        return self.stop_reason == COMPILE_ONLY


@attrs.frozen(kw_only=True)
class Levels:
    """The metrics of a result, keyed by level."""

    framework_level: Metrics | UnsetType = UNSET
    compiler_level: Metrics | UnsetType = UNSET

    def __attrs_post_init__(self) -> None:
        if bool(self.framework_level) == bool(self.compiler_level):
            raise ValueError("expected either framework_level or compiler_level")


@attrs.frozen(kw_only=True)
class WorkloadRecord:
    """Identity of a workload across frameworks; see `openxla.benchmark.workloads`."""

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
    """The Python environment of a trial, if it was not the suite's own."""

    name: Text
    python: str = ""


@attrs.frozen(kw_only=True)
class Definition:
    """The case, competitor and device of a result.

    Attributes:
      framework: name of the enumeration member, e.g. `ModelFrameworkType.JAX`.
      precision: the model's data type, or the type to which a compiler quantises the model.
      compiler: the compiler with its options, e.g. `inductor+freezing`.
      input_source: directory with the arrays that the user provided as inputs.
      outputs: handling of outputs requested with `--outputs`; None for the stack's default.
        `Program.outputs` records the actual handling.
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
        """The competitor as formatted by `str(Competitor)`: `backend:compiler[@environment]`."""
        where = f"@{self.environment.name}" if self.environment else ""
        return f"{self.backend}:{self.compiler}{where}"

    @property
    def framework_name(self) -> str:
        """Framework of the model, in lower case."""
        return self.framework.rpartition(".")[2].lower()


@attrs.frozen(kw_only=True)
class ProfileRecord:
    """Files written by a stack's profiler."""

    directory: str = ""
    files: tuple[str, ...] = ()
    iterations: int | None = None
    error: str | None = None


@attrs.frozen(kw_only=True)
class Result:
    """Result of one trial: a case run by one competitor on one device.

    Attributes:
      absence: missing modules that prevented the trial; unset otherwise.
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
        metrics = self.measured
        if self.status is Status.OK:
            if metrics.error is not UNSET:
                raise ValueError("an ok result must not have an error")
            if metrics.compile_only:
                if metrics.compile is UNSET or metrics.median_latency_ms is not UNSET:
                    raise ValueError("a compile-only result must have compile times and no latency")
            elif lacking := [name for name in MEASURED if getattr(metrics, name) is UNSET]:
                raise ValueError(f"an ok result must have {lacking[0]}")
            elif metrics.throughput is not UNSET:
                if metrics.throughput.rate is None:
                    raise ValueError("an ok result of a script must have a rate")
            elif metrics.verification is None or metrics.final_verification is None:
                raise ValueError("an ok result must have verification and final_verification")
        elif not self.phase or not self.reason:
            raise ValueError(f"a result with status {self.status.value} must have phase and reason")
        elif metrics.error is UNSET:
            raise ValueError(f"a result with status {self.status.value} must have an error")
        elif metrics.median_latency_ms is not UNSET or metrics.latencies_ms is not UNSET:
            raise ValueError(f"a result with status {self.status.value} must not have latencies")

    @property
    def level(self) -> Level:
        """The level that was measured."""
        return "framework_level" if self.metrics.framework_level else "compiler_level"

    @property
    def measured(self) -> Metrics:
        """The metrics, at whichever level they were recorded."""
        metrics = self.metrics.framework_level or self.metrics.compiler_level
        assert isinstance(metrics, Metrics)
        return metrics

    @property
    def word(self) -> str:
        """Displayed status: the status, or `AGREED`.

        An `ok` result is `AGREED` if it was verified against a plain run in the program's own type:
        the two are known to agree, but not to be accurate.
        """
        if self.status is Status.OK and self.measured.without_float64 is not UNSET:
            return AGREED
        return self.status.value

    @property
    def ranked(self) -> bool:
        """Whether the speed may be compared with other results."""
        return self.status is Status.OK and self.measured.not_ranked is UNSET

    @property
    def key(self) -> ResultKey:
        """Key that distinguishes results, equal to `Trial.key`."""
        return (self.definition.benchmark_name, self.definition.competitor, self.definition.device)


@attrs.frozen(kw_only=True)
class Package:
    """An installed package."""

    name: str
    version: str


@attrs.frozen(kw_only=True)
class Host:
    """A machine, as described by `analysis.machine.host.describe`.

    Attributes:
      threads_from: the rule that determined `threads`; None if not recorded.
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
    """Packages in another Python environment in which trials ran (`--env`)."""

    python: str = ""
    python_version: str = ""
    python_environment: tuple[Package, ...] = ()


@attrs.frozen(kw_only=True)
class ExecutionEnvironment:
    """Machine and software of a run."""

    python_environment: tuple[Package, ...]
    host: Host
    git_revision: str | None
    environments: dict[str, OtherEnvironment] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Trigger:
    """Start time and command of a run."""

    timestamp: Annotated[
        str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")
    ]
    command: tuple[str, ...]

    def __attrs_post_init__(self) -> None:
        datetime.datetime.fromisoformat(self.timestamp)

    @property
    def time(self) -> datetime.datetime:
        """Start time with its time zone."""
        return datetime.datetime.fromisoformat(self.timestamp)


@attrs.frozen(kw_only=True)
class Run:
    """One invocation of a command that takes measurements.

    Attributes:
      allocation: where the run took place; unset unless a fleet started it.
    """

    run_id: Text
    trigger: Trigger
    execution_environment: ExecutionEnvironment
    allocation: Allocation | UnsetType = UNSET


@attrs.frozen(kw_only=True)
class Document:
    """A results file: any number of runs and their results.

    `trigger` and `execution_environment` describe the latest run. The OpenXLA suite's
    readers expect these fields here, because its files contain one run each.
    """

    schema_version: Literal[1]
    trigger: Trigger
    execution_environment: ExecutionEnvironment
    runs: Annotated[tuple[Run, ...], Meta(min_length=1)]
    benchmarks: tuple[Result, ...]
