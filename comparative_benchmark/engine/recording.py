"""Finishes trials: finds those whose speed changed over the rounds, and converts all to results."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from statistics import fmean, median
from typing import Any, Literal

import attrs
from msgspec import UNSET, UnsetType

from comparative_benchmark.analysis.stats.analysis import Interval, SampleError, latency_interval
from comparative_benchmark.analysis.stats.steadiness import Rounds, why_not_steady
from comparative_benchmark.backends.api import OutputMode
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.engine.worker.phases import PHASES
from comparative_benchmark.results.outcome import (
    GenerationTimes,
    ProcessRecord,
    TrialOutcome,
    contention_of,
    outlier_counts,
    summarize,
)
from comparative_benchmark.results.record import (
    NOT_MEASURABLE,
    Compile,
    CompileProcess,
    Definition,
    EnvironmentName,
    Generation,
    GenerationProcess,
    IntervalRecord,
    Levels,
    Metrics,
    Phase,
    Process,
    Result,
    ResultKey,
    Status,
    Training,
    WorkloadRecord,
)
from openxla.benchmark.workloads import generated_tokens, has_weights, training_of


def judge_rounds(outcomes: Mapping[ResultKey, TrialOutcome], *, interleaved: bool) -> None:
    """Marks trials as `unsteady` if later rounds differ from earlier ones.

    Args:
      outcomes: outcomes of the competitors; their n-th processes were measured together.
      interleaved: whether they were interleaved; then only changes relative to the others count.
    """
    measured = {
        key: [_by_round(process) for process in outcome.processes]
        for key, outcome in outcomes.items()
        if not outcome.ended
    }
    for key, processes in measured.items():
        others = [rounds for other, rounds in measured.items() if interleaved and other != key]
        beside = [
            [rounds[number] for rounds in others if number < len(rounds)]
            for number in range(len(processes))
        ]
        reason = why_not_steady(processes, beside)
        if reason is not None:
            last = outcomes[key].processes[-1]
            last.status, last.phase, last.reason = Status.UNSTEADY, "measure", reason


def _by_round(process: ProcessRecord) -> Rounds:
    """Returns the log median latency of each block, by round."""
    return {
        block.round: math.log(statistics.median(block.latencies_ms))
        for block in process.blocks
        if block.round is not None and block.latencies_ms
    }


def generation_metrics(trial: Trial, outcome: TrialOutcome) -> Generation | None:
    """Returns the metrics of a generating model's trial; None for other models.

    `tokens_per_s` is the number of new tokens in the batch divided by the latency of the whole
    generation, including prefill. `prefill_ms` is the time to the first tokens,
    `decode_ms_per_token` the time of a step, which yields one token per sequence; both are measured
    on separate programs. Each is the mean of per-process medians, as for latencies, with a 95 %
    interval if there was more than one process.
    """
    tokens = generated_tokens(trial.case)
    if tokens is None:
        return None
    batch, new = tokens.shape
    # Failed trials have no speed, neither as a whole nor of their parts.
    processes = [] if outcome.ended else outcome.processes
    measured = [p.generation for p in processes if p.generation is not None]
    reasons = [times.reason for times in measured if times.reason]
    latency = latency_of([process.latencies_ms for process in processes])
    return Generation(
        batch_size=batch,
        prompt_tokens=trial.workload.inputs[0].shape[1],
        new_tokens=new,
        **per_second("tokens_per_s", latency, batch * new),
        **_named("prefill_ms", _part(measured, reasons, "prefill_ms")),
        **_named("decode_ms_per_token", _part(measured, reasons, "decode_ms")),
        not_measurable=reasons[0] if reasons else None,
        processes=tuple(
            GenerationProcess(prefill_ms=tuple(times.prefill_ms), decode_ms=tuple(times.decode_ms))
            for times in measured
        ),
        verification=next((t.verification for t in measured if t.verification), None),
    )


def _part(
    measured: Sequence[GenerationTimes], reasons: Sequence[str], name: str
) -> Interval | None:
    # One failed process invalidates the metric.
    return None if reasons else latency_of([getattr(times, name) for times in measured])


def latency_of(processes: Sequence[Sequence[float]]) -> Interval | None:
    """Returns the latency over processes, given the samples of each; None without samples."""
    try:
        return latency_interval([list(samples) for samples in processes if samples])
    except SampleError:
        return None


def per_second(name: str, latency: Interval | None, count: int) -> dict[str, Any]:
    """Returns `count` divided by the latency in seconds, and its interval, under a name."""
    if latency is None:
        return _named(name, None)
    rate = 1e3 * count
    low = max(latency.low, 1e-9)
    inverse = attrs.evolve(
        latency, estimate=rate / latency.estimate, low=rate / latency.high, high=rate / low
    )
    return _named(name, inverse)


def _named(name: str, interval: Interval | None) -> dict[str, Any]:
    """Returns the estimate and its interval under a name."""
    if interval is None:
        return {name: None}
    limits = None
    if interval.processes > 1:
        limits = IntervalRecord(
            low=interval.low, high=interval.high, level=interval.level, processes=interval.processes
        )
    return {name: interval.estimate, f"{name}_interval": limits}


def training_metrics(trial: Trial, outcome: TrialOutcome) -> Training | None:
    """Returns the metrics of a training case's trial; None for other cases.

    Rates derive from the latency of a step: the mean of per-process medians, with a 95 % interval
    if there was more than one process.
    """
    training = training_of(trial.case)
    if training is None:
        return None
    # Failed trials have no speed.
    processes = [] if outcome.ended else outcome.processes
    latency = latency_of([process.latencies_ms for process in processes])
    # The meaning of the axes of a user's batch is unknown.
    inputs = trial.workload.inputs
    _, batch, *rest = inputs[0].shape if inputs else (0, 1)
    tokens: dict[str, Any] = {"tokens_per_s": None}
    rates = per_second("samples_per_s", latency, batch) if inputs else {"samples_per_s": None}
    if inputs and inputs[0].dtype == "i32":
        tokens = per_second("tokens_per_s", latency, batch * rest[0])
    every = outcome.processes
    errors = [e for e in (p.update_error for p in every) if e is not None and isfinite(e)]
    return Training(
        optimizer=training["optimizer"]["name"],
        batch_size=batch,
        verified_steps=training["steps"],
        **rates,
        **tokens,
        **_parts(processes),
        update_error=max(errors, default=None),
        without_update_check=_first(p.without_update_check for p in every) or None,
    )


def _parts(processes: Sequence[ProcessRecord]) -> dict[str, Any]:
    """Returns the times of the parts of a step; one process without them invalidates them."""
    measured = [process.step_times for process in processes if process.step_times is not None]
    reasons = [p.without_step_times for p in processes if p.without_step_times is not None]
    parts: dict[str, Any] = {"processes": tuple(measured)}
    if reasons or not measured:
        return parts | {"parts_not_measurable": reasons[0] if reasons else None}
    for name in ("forward_ms", "backward_ms", "forward_backward_ms", "update_ms"):
        samples = [getattr(times, name) for times in measured]
        parts[name] = fmean(map(median, samples)) if all(samples) else None
    others = parts["forward_backward_ms"] or parts["forward_ms"] + parts["backward_ms"]
    return parts | {"optimizer_share": parts["update_ms"] / (others + parts["update_ms"])}


_Phases = Mapping[str, Phase | Literal["not_measurable"]]


def to_result(
    trial: Trial, outcome: TrialOutcome, *, run_id: str, outputs: OutputMode | None = None
) -> Result:
    """Returns the result of a finished trial; `outputs` is the requested handling of outputs."""
    # A process that an interruption cut short has no final verification.
    verified = [process for process in outcome.processes if process.final_verification]
    last = outcome.ended_by or (verified or outcome.processes)[-1]
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
        # Processes that start from another process's export have imported fewer packages.
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
    where = competitor.environment
    return Definition(
        benchmark_name=case.name,
        # The OpenXLA suite's readers expect the name of the enumeration member, not its value.
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
        environment=EnvironmentName(name=where.name, python=where.python) if where else None,
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


def _metrics(trial: Trial, outcome: TrialOutcome, last: ProcessRecord) -> Metrics:
    """Returns the trial's metrics; the first, cold process gives compile time and phases."""
    first = outcome.processes[0]
    # Each fact has the name of its metric; missing ones are omitted from the file.
    facts = attrs.asdict(outcome.facts, recurse=False)
    values = {name: fact for name, fact in facts.items() if fact is not None}
    if doubt := _first(process.not_ranked for process in outcome.processes):
        values.setdefault("not_ranked", doubt)
    # Wrong or unfinished trials have no speed.
    if outcome.status is Status.OK:
        if samples := [value for p in outcome.processes for value in p.latencies_ms]:
            values |= summarize(samples, "latency_ms") | _samples(outcome, samples)
    else:
        # The field that the OpenXLA suite's readers expect.
        values["error"] = f"{outcome.status.value} in {last.phase}: {last.reason}"
    if outcome.status is Status.UNSTEADY:
        # Evidence for the status, not a speed.
        values["warmup_latencies_ms"] = tuple(last.warmup_latencies_ms)
        values["processes"] = tuple(map(_process, outcome.processes))
    phases = _phases(first)
    warm = _compile_times(outcome, cold=False)
    return Metrics(
        **values,
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
        truth_not_isolated=_first(p.truth_not_isolated for p in outcome.processes),
        accuracy=first.accuracy or UNSET,
        variables=last.variables,
        # Without weights, the field has no meaning.
        program=last.program
        if has_weights(trial.case)
        else attrs.evolve(last.program, weights=None),
        race=outcome.race,
        stop_reason=outcome.stop_reason,
        generation=generation_metrics(trial, outcome) or UNSET,
        training=training_metrics(trial, outcome) or UNSET,
    )


def _first(reasons: Iterable[str | None]) -> str | UnsetType:
    return next(filter(None, reasons), UNSET)


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
    """Returns time and memory of each phase; phases that the stack cannot measure are named."""
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
    # Phases that cannot be measured separately still add up.
    return _sum_ms(process.phases, "trace", "lower", "compile")


def _largest_peak(outcome: TrialOutcome) -> int | None:
    return max(filter(None, (p.host_memory_peak_bytes for p in outcome.processes)), default=None)


def _sum_ms(phases: _Phases, *names: str) -> float | None:
    known = [phase.ms for name in names if isinstance(phase := phases.get(name), Phase)]
    return sum(known) if known else None


def _megabytes(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / 1e6
