"""What a results file says of training steps: samples and tokens per second."""

from collections.abc import Sequence
from math import isfinite
from statistics import fmean, median
from typing import Any

from comparative_benchmark.results.outcome import ProcessRecord, TrialOutcome
from comparative_benchmark.results.record import Training
from comparative_benchmark.runs.generation_metrics import latency_of, per_second
from comparative_benchmark.runs.trial import Trial
from openxla.benchmark.workloads import training_of


def training_metrics(trial: Trial, outcome: TrialOutcome) -> Training | None:
    """Returns the metrics of a training case's trial; None for any other.

    Rates are those of the step's latency: the mean over the processes of the median of a process,
    with its 95 % interval where there was more than one process.
    """
    training = training_of(trial.case)
    if training is None:
        return None
    # What failed has no speed.
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
    reasons = [process.without_update_check for process in every]
    return Training(
        optimizer=training["optimizer"]["name"],
        batch_size=batch,
        verified_steps=training["steps"],
        **rates,
        **tokens,
        **_parts(processes),
        update_error=max(errors, default=None),
        without_update_check=next(filter(None, reasons), None),
    )


def _parts(processes: Sequence[ProcessRecord]) -> dict[str, Any]:
    """Returns the parts of a step; one process without them invalidates them."""
    measured = [process.step_times for process in processes if process.step_times is not None]
    reasons = [p.without_step_times for p in processes if p.without_step_times is not None]
    found: dict[str, Any] = {"processes": tuple(measured)}
    if reasons or not measured:
        return found | {"parts_not_measurable": reasons[0] if reasons else None}
    for name in ("forward_ms", "backward_ms", "forward_backward_ms", "update_ms"):
        samples = [getattr(times, name) for times in measured]
        found[name] = fmean(map(median, samples)) if all(samples) else None
    others = found["forward_backward_ms"] or found["forward_ms"] + found["backward_ms"]
    return found | {"optimizer_share": found["update_ms"] / (others + found["update_ms"])}
