"""A finished trial as a result."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import attrs
from msgspec import UNSET, UnsetType

from comparative_benchmark.backends.outputs import OutputMode
from comparative_benchmark.results.contention import contention_of
from comparative_benchmark.results.outcome import ProcessRecord, TrialOutcome
from comparative_benchmark.results.record import (
    NOT_MEASURABLE,
    Compile,
    CompileProcess,
    Definition,
    EnvironmentName,
    Levels,
    Metrics,
    Phase,
    Process,
    Result,
    Status,
    WorkloadRecord,
)
from comparative_benchmark.results.summary import outlier_counts, summarize
from comparative_benchmark.runs.generation_metrics import generation_metrics
from comparative_benchmark.runs.training_metrics import training_metrics
from comparative_benchmark.runs.trial import Competitor, Trial
from comparative_benchmark.worker.phase_names import PHASES
from openxla.benchmark.workloads import has_weights

_Phases = Mapping[str, Phase | Literal["not_measurable"]]


def to_result(
    trial: Trial, outcome: TrialOutcome, *, run_id: str, outputs: OutputMode | None = None
) -> Result:
    """Returns the result of a finished trial, whose outputs were to be held so."""
    last = outcome.ended_by or outcome.processes[-1]
    metrics = _metrics(trial, outcome, last)
    ended = {}
    if outcome.status is not Status.OK:
        ended = {"phase": last.phase, "reason": last.reason, "traceback": last.traceback}
    return Result(
        run_id=run_id,
        definition=_definition(trial, outputs),
        status=outcome.status,
        metrics=Levels(**{trial.competitor.level: metrics}),
        wall_s=round(outcome.wall_s, 3),
        log_file=last.log_file or None,
        # What started from another process's export has imported less.
        versions=dict(
            sorted({k: v for p in outcome.processes for k, v in p.versions.items()}.items())
        ),
        profile=outcome.profile or UNSET,
        timeline=outcome.timeline or UNSET,
        absence=outcome.absence or UNSET,
        **ended,
    )


def _definition(trial: Trial, outputs: OutputMode | None) -> Definition:
    case, competitor, workload = trial.case, trial.competitor, trial.workload
    return Definition(
        benchmark_name=case.name,
        # As the OpenXLA suite's readers know it: the enumeration's name, not its value.
        framework=str(case.model.model_impl.framework_type),
        data_type=workload.data_type or case.data_type,
        precision=trial.precision,
        batch_size=case.batch_size,
        compiler=competitor.compiler_label,
        device=trial.device.name,
        tags=tuple(case.tags),
        backend=competitor.backend.name,
        level=competitor.level,
        options=tuple(competitor.options),
        environment=_environment(competitor),
        model=case.model.name,
        model_parameters=dict(case.model.model_parameters),
        verify_parameters=dict(case.verify_parameters),
        input_data=case.input_data.name,
        input_source=case.input_data.source_url or None,
        outputs=outputs,
        workload=WorkloadRecord(
            id=workload.id,
            digest=workload.digest,
            label=workload.label,
            architecture=workload.architecture,
            config_digest=workload.config_digest,
            checkpoint=workload.checkpoint,
            data_type=workload.data_type,
            inputs=tuple(map(str, workload.inputs)),
            input_digest=workload.input_digest,
        ),
    )


def _environment(competitor: Competitor) -> EnvironmentName | None:
    environment = competitor.environment
    if environment is None:
        return None
    return EnvironmentName(name=environment.name, python=environment.python)


def _metrics(trial: Trial, outcome: TrialOutcome, last: ProcessRecord) -> Metrics:
    """Metrics of the trial; compile time and phases are those of the first, cold process."""
    first = outcome.processes[0]
    found: dict[str, Any] = {}
    # A wrong answer has no speed, and neither has a trial that did not finish.
    if outcome.status is Status.OK:
        if samples := _latencies(outcome):
            found |= summarize(samples, "latency_ms") | _samples(outcome, samples)
    else:
        # Where the OpenXLA suite's readers look for it.
        found["error"] = f"{outcome.status.value} in {last.phase}: {last.reason}"
    if outcome.status is Status.UNSTEADY:
        # Evidence, not a speed.
        found["warmup_latencies_ms"] = tuple(last.warmup_latencies_ms)
        found["processes"] = tuple(map(_process, outcome.processes))
    phases = _phases(first)
    warm = _compile_times(outcome, cold=False)
    return Metrics(
        **found,
        compile_time_ms=_compile_ms(first),
        warm_compile_time_ms=warm,
        compile=Compile(
            cold_ms=_compile_times(outcome, cold=True),
            warm_ms=warm,
            processes=tuple(map(_compile, outcome.processes)),
        ),
        input_data_transfer_ms=_sum_ms(phases, "h2d"),
        output_data_transfer_ms=_sum_ms(phases, "d2h"),
        autotuning_enabled=trial.autotunes,
        device_memory_peak_mb=_megabytes(last.program.device_memory_peak_bytes),
        host_memory_peak_mb=_megabytes(_largest_peak(outcome)),
        phases=dict(phases),
        verification=last.verification,
        final_verification=last.final_verification,
        second_verification=last.second_verification,
        without_second=last.without_second or UNSET,
        without_fresh_runs=_first(p.without_fresh_runs for p in outcome.processes),
        without_float64=outcome.facts.without_float64 or UNSET,
        truth_source=outcome.facts.truth_source or UNSET,
        not_ranked=outcome.facts.not_ranked or UNSET,
        truth_check=outcome.facts.truth_check or UNSET,
        recipe_sqnr_db=UNSET
        if outcome.facts.recipe_sqnr_db is None
        else outcome.facts.recipe_sqnr_db,
        truth_not_isolated=_first(p.truth_not_isolated for p in outcome.processes),
        accuracy=first.accuracy or UNSET,
        variables=last.variables,
        # Nothing can be frozen, or be an argument, where there is nothing.
        program=last.program
        if has_weights(trial.case)
        else attrs.evolve(last.program, weights=None),
        workload_cost=outcome.facts.workload_cost,
        artifact_digests=outcome.facts.artifact_digests,
        artifact_source=outcome.facts.artifact_source,
        program_source=outcome.facts.program_source,
        race=outcome.race,
        stop_reason=outcome.stop_reason,
        generation=generation_metrics(trial, outcome) or UNSET,
        training=training_metrics(trial, outcome) or UNSET,
    )


def _first(reasons: Iterable[str | None]) -> str | UnsetType:
    return next(filter(None, reasons), UNSET)


def _latencies(outcome: TrialOutcome) -> list[float]:
    return [value for process in outcome.processes for value in process.latencies_ms]


def _samples(outcome: TrialOutcome, samples: Sequence[float]) -> dict[str, Any]:
    blocks = [block for process in outcome.processes for block in process.blocks]
    warmups = [value for p in outcome.processes for value in p.warmup_latencies_ms]
    wall_ms = sum(block.wall_ms or 0.0 for block in blocks)
    return {
        **summarize(warmups, "warmup_latency_ms"),
        "warmup_iterations": len(warmups),
        "benchmark_iterations": len(samples),
        "latencies_ms": tuple(samples),
        "warmup_latencies_ms": tuple(warmups),
        "dispatch_ms": tuple(value for block in blocks for value in block.dispatch_ms),
        "device_latencies_ms": tuple(value for block in blocks for value in block.device_ms),
        "contention": contention_of(blocks),
        "outliers": outlier_counts(process.latencies_ms for process in outcome.processes),
        "cpu_wall_ratio": sum(b.cpu_ms or 0.0 for b in blocks) / wall_ms if wall_ms else None,
        "processes": tuple(map(_process, outcome.processes)),
    }


def _process(process: ProcessRecord) -> Process:
    return Process(
        blocks=tuple(process.blocks),
        void_blocks=tuple(process.void_blocks),
        warmup_iterations=len(process.warmup_latencies_ms),
        stop_reason=process.stop_reason,
        timer_ns=process.timer_ns,
        steadiness=process.steadiness,
        compile_time_ms=_compile_ms(process),
        artifact_sha256=process.program.artifact_sha256,
        cache_hits=process.program.cache_hits,
        cache_misses=process.program.cache_misses,
        host_memory_peak_mb=_megabytes(process.host_memory_peak_bytes),
        host_memory_base_mb=_megabytes(process.host_memory_base_bytes),
        effective=process.effective,
    )


def _phases(process: ProcessRecord) -> _Phases:
    """Returns each phase with its time and memory; those that the stack cannot tell are named."""
    hidden = process.program.not_measurable
    names = [*PHASES, *sorted(set(process.phases) - set(PHASES))]
    return {
        name: NOT_MEASURABLE if name in hidden else process.phases[name]
        for name in names
        if name in hidden or name in process.phases
    }


def _compile_times(outcome: TrialOutcome, *, cold: bool) -> tuple[float, ...]:
    times = [_compile_ms(process) for process in outcome.processes if process.cold is cold]
    return tuple(value for value in times if value is not None)


def _compile(process: ProcessRecord) -> CompileProcess:
    phases, program = _phases(process), process.program
    return CompileProcess(
        cold=process.cold,
        trace_ms=_sum_ms(phases, "trace"),
        lower_ms=_sum_ms(phases, "lower"),
        compile_ms=_sum_ms(phases, "compile"),
        cache_hits=program.cache_hits,
        cache_misses=program.cache_misses,
        artifact_sha256=program.artifact_sha256,
        artifact_size_bytes=program.artifact_size_bytes,
    )


def _compile_ms(process: ProcessRecord) -> float | None:
    return _sum_ms(_phases(process), "trace", "lower", "compile")


def _largest_peak(outcome: TrialOutcome) -> int | None:
    peaks = [process.host_memory_peak_bytes for process in outcome.processes]
    return max((peak for peak in peaks if peak is not None), default=None)


def _sum_ms(phases: _Phases, *names: str) -> float | None:
    known = [phase.ms for name in names if isinstance(phase := phases.get(name), Phase)]
    return sum(known) if known else None


def _megabytes(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / 1e6
