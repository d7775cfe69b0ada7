"""What a results file says of a model that generates: first token, further tokens, tokens/s."""

from collections.abc import Sequence
from typing import Any

import attrs

from comparative_benchmark.results.outcome import GenerationTimes, TrialOutcome
from comparative_benchmark.results.record import Generation, GenerationProcess, IntervalRecord
from comparative_benchmark.runs.trial import Trial
from comparative_benchmark.stats.analysis import Interval, SampleError, latency_interval
from openxla.benchmark.workloads import generated_tokens


def generation_metrics(trial: Trial, outcome: TrialOutcome) -> Generation | None:
    """Returns the metrics of a generating model's trial; None for any other model.

    `tokens_per_s` counts all new tokens of the batch over the latency of the whole generation, the
    prefill included. `prefill_ms` is the time to the first tokens, `decode_ms_per_token` that of a
    step, which gives one to every sequence; both of programs of their own. Each is the mean over
    the processes of the median of a process, as latencies are, with its 95 % interval where there
    was more than one process.
    """
    tokens = generated_tokens(trial.case)
    if tokens is None:
        return None
    batch, new = tokens.shape
    # What failed has no speed, and neither have its parts.
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
    """Returns the latency of processes, each with its samples; None where there are none."""
    try:
        return latency_interval([list(samples) for samples in processes if samples])
    except SampleError:
        return None


def per_second(name: str, latency: Interval | None, count: int) -> dict[str, Any]:
    """Returns how many of `count` a latency makes in a second, and the interval, under a name."""
    if latency is None:
        return _named(name, None)
    rate = 1e3 * count
    low = max(latency.low, 1e-9)
    inverse = attrs.evolve(
        latency, estimate=rate / latency.estimate, low=rate / latency.high, high=rate / low
    )
    return _named(name, inverse)


def _named(name: str, interval: Interval | None) -> dict[str, Any]:
    """Returns the estimate under a name, and its interval beside it."""
    if interval is None:
        return {name: None}
    limits = None
    if interval.processes > 1:
        limits = IntervalRecord(
            low=interval.low,
            high=interval.high,
            level=interval.level,
            processes=interval.processes,
        )
    return {name: interval.estimate, f"{name}_interval": limits}
