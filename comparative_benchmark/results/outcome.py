"""Outcomes of trials: records of their processes, how they ended, and summaries of samples."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

import attrs

from comparative_benchmark.analysis.machine import conditions, gpu_state
from comparative_benchmark.analysis.machine.worker_settings import EffectiveSettings
from comparative_benchmark.analysis.stats.steadiness import Steadiness, tukey_outliers
from comparative_benchmark.analysis.verification.accuracy import Accuracy
from comparative_benchmark.analysis.verification.verification import Verification
from comparative_benchmark.backends.missing_packages import Absence
from comparative_benchmark.errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, EXIT_WRONG
from comparative_benchmark.results.record import (
    ArtifactSource,
    Block,
    Contention,
    Metrics,
    Outliers,
    Phase,
    ProfileRecord,
    Program,
    ProgramSource,
    RaceNote,
    Result,
    Status,
    StepTimes,
)
from openxla.benchmark.artifacts.workload_store import TruthCheck, TruthSource, WorkloadCost

# A percentile is given only if at least this many samples lie beyond it.
_SAMPLES_BEYOND = 5


def summarize(samples: Sequence[float], suffix: str) -> dict[str, float | None]:
    """Returns min, max, mean, median, standard deviation and median absolute deviation.

    Keys are `<statistic>_<suffix>`. The standard deviation uses n - 1 and is None for one sample.
    p90, p95 and p99 are included if n is large enough.
    """
    if not samples:
        return {}
    # Sort once: a race of a small program has hundreds of thousands of samples.
    ordered = sorted(samples)
    median, mean = statistics.median(ordered), statistics.fmean(ordered)
    summary: dict[str, float | None] = {
        f"min_{suffix}": ordered[0],
        f"max_{suffix}": ordered[-1],
        f"mean_{suffix}": mean,
        f"median_{suffix}": median,
        f"stddev_{suffix}": _stddev(ordered, mean) if len(ordered) > 1 else None,
        f"mad_{suffix}": statistics.median(abs(value - median) for value in ordered),
    }
    supported = [p for p in (90, 95, 99) if len(ordered) * (100 - p) >= _SAMPLES_BEYOND * 100]
    if supported:
        cuts = statistics.quantiles(ordered, n=100, method="inclusive")
        summary |= {f"p{percent}_{suffix}": cuts[percent - 1] for percent in supported}
    return summary


def _stddev(samples: Sequence[float], mean: float) -> float:
    # Two passes with an exact sum; `statistics.stdev` uses fractions and takes three times as long.
    return math.sqrt(math.fsum((value - mean) ** 2 for value in samples) / (len(samples) - 1))


def outlier_counts(processes: Iterable[Sequence[float]]) -> Outliers:
    """Returns how many samples are mild and severe outliers within their process, by Tukey's rule.

    Each process has separate fences: processes of a trial may differ by more than the interquartile
    range of one, so pooled samples could show false outliers or hide real ones. Outliers are
    counted, never dropped; see `tukey_outliers`.
    """
    counts = [tukey_outliers(samples) for samples in processes]
    return Outliers(
        mild=sum(mild for mild, _ in counts), severe=sum(severe for _, severe in counts)
    )


def sound_and_void(blocks: Sequence[Block]) -> tuple[list[Block], list[Block]]:
    """Splits the blocks of one process into valid and void ones; `void` holds the reason."""
    every = [
        gpu_state.Ends(around.gpus_at_start, around.gpus_at_end)
        if (around := block.conditions)
        else gpu_state.Ends((), ())
        for block in blocks
    ]
    reasons = gpu_state.why_void(every)
    judged = [attrs.evolve(block, void=why) for block, why in zip(blocks, reasons, strict=True)]
    return [b for b in judged if b.void is None], [b for b in judged if b.void is not None]


def contention_of(blocks: Sequence[Block]) -> Contention:
    """Returns contention verdicts for single blocks and for all blocks together.

    `contended` is None if even all blocks together are too short for a verdict, or if the system
    does not report the load of other processes; `reasons` then give the cause.
    """
    verdicts = [block.conditions.contended if block.conditions else None for block in blocks]
    known = [block.conditions for block in blocks if block.conditions]
    # Sources without totals cannot be added up.
    counted = len(known) == len(blocks) and all(load.totals for load in known)
    every = conditions.together(known) if counted else None
    return Contention(
        contended_blocks=sum(verdict is True for verdict in verdicts),
        clean_blocks=sum(verdict is False for verdict in verdicts),
        not_judged_blocks=sum(verdict is None for verdict in verdicts),
        contended=every.contended if every else None,
        reasons=every.reasons if every else (),
        foreign_cpu_share=every.foreign_cpu_share if every else None,
        steal_share=every.steal_share if every else None,
    )


def disturbances(trials: Sequence[Metrics]) -> Iterator[str]:
    """Yields a sentence about void blocks and one about trials disturbed by other processes."""
    processes = [process for metrics in trials for process in metrics.processes or ()]
    if void := [block for process in processes for block in process.void_blocks]:
        yield f"blocks excluded: {len(void)} (the last because {void[-1].void})"
    if warning := contention_warning([trial.contention or Contention() for trial in trials]):
        yield warning


def contention_warning(contentions: Sequence[Contention]) -> str | None:
    """Returns a warning if other processes disturbed trials of a run, else None.

    Args:
      contentions: contention of each trial; trials of older results have no verdict.
    """
    disturbed = [trial for trial in contentions if trial.contended and trial.reasons]
    if not disturbed:
        return None
    worst = max(disturbed, key=lambda trial: trial.foreign_cpu_share or 0.0)
    return (
        f"disturbances in {len(disturbed)} of {len(contentions)} trials "
        f"({worst.reasons[0]}); run `cbs doctor`, then repeat the run on a quiet machine"
    )


@attrs.frozen(kw_only=True)
class GenerationTimes:
    """Prefill and decode times of a generating model, measured separately in one process.

    Attributes:
      prefill_ms: time from the start of each prefill to the first new tokens.
      decode_ms: time of each step, which yields one token per sequence.
      reason: why times are missing; None if they are present.
      verification: verification of the tokens and logits from prefill and decode together.
      phases: phases of the worker, including prefill and decode.
    """

    prefill_ms: list[float] = attrs.field(factory=list)
    decode_ms: list[float] = attrs.field(factory=list)
    reason: str | None = None
    verification: Verification | None = None
    phases: dict[str, Phase] = attrs.field(factory=dict)


@attrs.define(kw_only=True)
class ProcessRecord:
    """Result of one worker process.

    Attributes:
      status, phase, reason, traceback: how the process ended; all but `status` are unset if it is
        `ok`.
      log_file: output of the worker.
      cold: whether it compiled with empty caches.
      workload: digest of its workload; None in journals of older versions.
      stop_reason: why no more rounds were measured.
      timer_ns: resolution of the worker's clock.
      host_memory_base_bytes: resident memory before the model was loaded; None if unknown.
      phases: time and peak memory by phase, as reported by the worker.
      verification: verification of the first run; `final_verification`: of the last timed output;
        `second_verification`: of a subsequent run on a second input.
      without_second: why the second input was not run, or which outputs that run does not verify;
        None if it ran or may have run.
      not_ranked: why its speed proves nothing although its outputs are correct; None if it does.
      without_fresh_runs: why no run on unseen inputs was timed; None if one was, or if the second
        input was not run either.
      truth_not_isolated: why the worker could read the files that its outputs were verified
        against; None if it could not.
      accuracy: accuracy on the model's task; None if the model has no task or another process
        measured it.
      steadiness: warm-up verdict with its evidence; None if iteration counts were fixed.
      blocks: samples, each with its round; `void_blocks`: excluded blocks.
      generation: prefill and decode of a generating model; None if they were not measured.
      step_times: parts of a training step; None if they were not measured.
      without_step_times: why `step_times` is None.
      update_error: error of a single optimizer update, as a fraction of the tolerance; None if it
        was not run.
      without_update_check: why the update could not be checked.
      program: facts that the backend reported about the compiled program.
      versions: versions of the packages that the worker had imported.
      variables: environment variables of the worker that can change speed or numbers.
      effective: effective settings of the process when its outputs were last fetched.
    """

    status: Status = Status.OK
    phase: str | None = None
    reason: str | None = None
    traceback: str | None = None
    log_file: str = ""
    cold: bool = False
    workload: str | None = None
    stop_reason: str | None = None
    timer_ns: float | None = None
    phases: dict[str, Phase] = attrs.field(factory=dict)
    host_memory_peak_bytes: int | None = None
    host_memory_base_bytes: int | None = None
    verification: Verification | None = None
    final_verification: Verification | None = None
    second_verification: Verification | None = None
    without_second: str | None = None
    without_fresh_runs: str | None = None
    not_ranked: str | None = None
    truth_not_isolated: str | None = None
    accuracy: Accuracy | None = None
    steadiness: Steadiness | None = None
    warmup_latencies_ms: list[float] = attrs.field(factory=list)
    blocks: list[Block] = attrs.field(factory=list)
    void_blocks: list[Block] = attrs.field(factory=list)
    generation: GenerationTimes | None = None
    step_times: StepTimes | None = None
    without_step_times: str | None = None
    update_error: float | None = None
    without_update_check: str | None = None
    program: Program = attrs.field(factory=Program)
    versions: dict[str, str] = attrs.field(factory=dict)
    variables: dict[str, str] = attrs.field(factory=dict)
    effective: EffectiveSettings | None = None

    @property
    def latencies_ms(self) -> list[float]:
        """All samples, in order."""
        return [value for block in self.blocks for value in block.latencies_ms]


@attrs.frozen(kw_only=True)
class TrialFacts:
    """Facts shared by all processes of a trial.

    Attributes:
      artifact_digests: digests of inputs, truth and reference.
      artifact_source: publication that the artifacts were fetched from; None if they were generated
        here.
      program_source: published program that the trial starts from, if any.
      without_float64: why the truth is not a float64 run; None if it is.
      truth_source: who computed the truth; None if it was published.
      not_ranked: why the trial is excluded from rankings; None if it may be ranked.
      truth_check: cross-check of the truth by a second implementation; None without one.
      recipe_sqnr_db: signal-to-noise ratio of a plain run that rounds like the recipe; None without
        such a run.
    """

    artifact_digests: dict[str, str] = attrs.field(factory=dict)
    artifact_source: ArtifactSource | None = None
    program_source: ProgramSource | None = None
    workload_cost: WorkloadCost = attrs.field(factory=WorkloadCost)
    without_float64: str | None = None
    truth_source: TruthSource | None = None
    not_ranked: str | None = None
    truth_check: TruthCheck | None = None
    recipe_sqnr_db: float | None = None


@attrs.define(kw_only=True)
class TrialOutcome:
    """Everything known about a finished trial: its process records and status.

    Attributes:
      absence: missing modules that prevented the trial; None if it was run.
    """

    processes: list[ProcessRecord] = attrs.field(factory=list)
    facts: TrialFacts = attrs.field(factory=TrialFacts)
    race: RaceNote = attrs.field(factory=RaceNote)
    profile: ProfileRecord | None = None
    timeline: str | None = None
    stop_reason: str | None = None
    wall_s: float = 0.0
    absence: Absence | None = None

    def add(self, record: ProcessRecord, wall_s: float = 0.0) -> None:
        """Adds the record of a finished process and its wall time."""
        self.processes.append(record)
        self.wall_s += wall_s

    @property
    def measured_s(self) -> float:
        """Total time of all blocks."""
        blocks = (block for process in self.processes for block in process.blocks)
        return sum(block.wall_ms or 0.0 for block in blocks) / 1e3

    @property
    def ended_by(self) -> ProcessRecord | None:
        """The process that ended the trial early, if any."""
        return next((p for p in self.processes if p.status is not Status.OK), None)

    @property
    def ended(self) -> bool:
        """Whether a process has failed, so that running more is pointless."""
        return self.ended_by is not None

    @property
    def status(self) -> Status:
        """Status of the process that ended the trial early, else `ok`."""
        return self.ended_by.status if self.ended_by else Status.OK


def exit_code_of(results: Sequence[Result]) -> int:
    """Returns 2 for a wrong output, 1 for another failure, 3 if nothing could be measured."""
    statuses = {result.status for result in results}
    if Status.WRONG_OUTPUT in statuses:
        return EXIT_WRONG
    if statuses - {Status.OK, Status.UNSUPPORTED}:
        return EXIT_FAILED
    return EXIT_OK if Status.OK in statuses else EXIT_MISSING
