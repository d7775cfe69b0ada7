"""How a trial ended, and what its processes gave."""

from collections.abc import Iterator, Sequence

import attrs

from comparative_benchmark.analysis.machine import conditions, gpu_contention
from comparative_benchmark.analysis.machine.effective import EffectiveSettings
from comparative_benchmark.analysis.stats.steadiness import Steadiness
from comparative_benchmark.analysis.verification.accuracy import Accuracy
from comparative_benchmark.analysis.verification.verification import Verification
from comparative_benchmark.backends.missing_packages import Absence
from comparative_benchmark.results.record import (
    ArtifactSource,
    Block,
    Contention,
    Metrics,
    Phase,
    ProfileRecord,
    Program,
    ProgramSource,
    RaceNote,
    Status,
    StepTimes,
)
from openxla.benchmark.artifacts.workload_store import TruthCheck, TruthSource, WorkloadCost


def sound_and_void(blocks: Sequence[Block]) -> tuple[list[Block], list[Block]]:
    """Returns the blocks of one process that count, and those that do not, with the reason."""
    every = [
        gpu_contention.Ends(found.gpus_at_start, found.gpus_at_end)
        if (found := block.conditions)
        else gpu_contention.Ends((), ())
        for block in blocks
    ]
    reasons = gpu_contention.why_void(every)
    judged = [attrs.evolve(block, void=why) for block, why in zip(blocks, reasons, strict=True)]
    return [b for b in judged if b.void is None], [b for b in judged if b.void is not None]


def contention_of(blocks: Sequence[Block]) -> Contention:
    """Returns the verdicts on single blocks, and the one on all of them.

    `contended` is None where even together they are too short to tell, or where the system does not
    say what others did; `reasons` then say why.
    """
    verdicts = [block.conditions.contended if block.conditions else None for block in blocks]
    known = [block.conditions for block in blocks if block.conditions]
    # A source of another kind counts nothing.
    counted = len(known) == len(blocks) and all(found.totals for found in known)
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
    """Yields a sentence on blocks that do not count, and one on trials that others disturbed."""
    processes = [process for metrics in trials for process in metrics.processes or ()]
    if void := [block for process in processes for block in process.void_blocks]:
        yield f"{len(void)} blocks excluded: {void[-1].void}"
    if warning := contention_warning([found.contention or Contention() for found in trials]):
        yield warning


def contention_warning(contentions: Sequence[Contention]) -> str | None:
    """Returns a warning if others disturbed trials of a run; None if not.

    Args:
      contentions: of each trial; those of older results have no verdict.
    """
    disturbed = [found for found in contentions if found.contended and found.reasons]
    if not disturbed:
        return None
    worst = max(disturbed, key=lambda found: found.foreign_cpu_share or 0.0)
    return (
        f"{len(disturbed)} of {len(contentions)} trials were disturbed "
        f"({worst.reasons[0]}): run `cbs doctor`, then repeat the run on a quiet machine"
    )


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
    phases: dict[str, Phase] = attrs.field(factory=dict)


@attrs.define(kw_only=True)
class ProcessRecord:
    """What one worker process gave.

    Attributes:
      status, phase, reason, traceback: how it ended; `phase` and the rest unless it is `ok`.
      log_file: what the worker printed.
      cold: whether it compiled with empty caches.
      stop_reason: why it was measured for no more rounds.
      timer_ns: smallest step of the worker's clock.
      host_memory_base_bytes: resident before the model came; None where nobody can tell.
      phases: time and peak memory by phase, as the worker reported.
      verification: of the first run; `final_verification`: of the last timed output;
        `second_verification`: of a run on a second input, after that.
      without_second: why it was not run on a second input, or which outputs that does not verify;
        None if it was, or might have been.
      without_fresh_runs: why no run on inputs that it had not seen was timed; None if one was, or
        it was not run on a second input either.
      truth_not_isolated: why its worker could see the files that its outputs were judged by; None
        if it could not.
      accuracy: at its model's task; None where it has none or another process was asked.
      steadiness: of the warm-up, with the evidence; None where counts were fixed.
      blocks: samples, each with its round; `void_blocks`: those that count for nothing.
      generation: of a model that generates, its parts; None if they were not measured.
      step_times: of a model that trains, the parts of a step; None if they were not measured.
      without_step_times: why they were not.
      update_error: of an update of the optimizer by itself, as a share of what is allowed; None if
        it was not run.
      without_update_check: why it was not, if it cannot be.
      program: what its backend told of what it compiled.
      versions: of the packages that the worker had imported.
      variables: of the worker's environment, those that can change speed or numbers.
      effective: what it computed with when its outputs were fetched last.
    """

    status: Status = Status.OK
    phase: str | None = None
    reason: str | None = None
    traceback: str | None = None
    log_file: str = ""
    cold: bool = False
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
        """All samples in order."""
        return [value for block in self.blocks for value in block.latencies_ms]


@attrs.frozen(kw_only=True)
class TrialFacts:
    """What all processes of a trial share.

    Attributes:
      artifact_digests: of inputs, truth and reference.
      artifact_source: the publication that these were fetched from, None if they were made here.
      program_source: the published program that the trial starts from, if it does.
      without_float64: why its truth is not a float64 run; None if it is.
      truth_source: who computed it; None if it was published.
      not_ranked: why the trial has no rank; None if it may have one.
      truth_check: how its truth was checked by a second implementation; None if it was not.
      recipe_sqnr_db: of a plain run that rounds what its recipe rounds; None without such a run.
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
    """All that is known when a trial has ended: the records of its processes, and how it ended.

    Attributes:
      absence: the modules that are not installed, for which it was not tried; None if it was tried.
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
        """Adds the record of a process that has ended, and the time that it took."""
        self.processes.append(record)
        self.wall_s += wall_s

    @property
    def measured_s(self) -> float:
        """Time of all its blocks."""
        blocks = (block for process in self.processes for block in process.blocks)
        return sum(block.wall_ms or 0.0 for block in blocks) / 1e3

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
