"""One trial as it stands in a results file: a superset of the seed project's shape.

{"definition": {...}, "status": ..., "metrics": {"framework_level" | "compiler_level": {...}}}
"""

from collections.abc import Mapping
from typing import Any

import attrs

from comparative_benchmark.harness.trial import Status, Trial, TrialOutcome
from comparative_benchmark.phase_names import PHASES
from comparative_benchmark.results.summary import summarize

Record = dict[str, Any]

NOT_MEASURABLE = "not_measurable"
# An answer that is wrong has no speed, and neither has a trial that did not finish.
_RANKED = (Status.OK,)


def to_record(trial: Trial, outcome: TrialOutcome, *, run_id: str) -> Record:
    """Returns the JSON value of a finished trial."""
    record: Record = {
        "run_id": run_id,
        "definition": _definition(trial),
        "status": outcome.status.value,
        "metrics": {trial.competitor.backend.level: _metrics(trial, outcome)},
        "wall_s": round(outcome.wall_s, 3),
        "log_file": outcome.log_file,
        "versions": outcome.versions,
    }
    if outcome.status is not Status.OK:
        record["phase"] = outcome.phase
        record["reason"] = outcome.reason
        record["traceback"] = outcome.traceback
    return record


def key_of(record: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Returns what tells a record from others, as `Trial.key` does."""
    definition = record["definition"]
    return (
        definition["benchmark_name"],
        definition["backend"],
        definition["compiler"],
        definition["device"],
    )


def _definition(trial: Trial) -> Record:
    case, competitor, workload = trial.case, trial.competitor, trial.workload
    return {
        "benchmark_name": case.name,
        # As the seed's readers know it: the enumeration's name, not its value.
        "framework": str(case.model.model_impl.framework_type),
        "data_type": case.data_type,
        "batch_size": case.batch_size,
        "compiler": competitor.compiler_label,
        "device": trial.device.name,
        "tags": list(case.tags),
        "backend": competitor.backend.name,
        "level": competitor.backend.level,
        "options": list(competitor.options),
        "model": case.model.name,
        "model_parameters": dict(case.model.model_parameters),
        "verify_parameters": dict(case.verify_parameters),
        "input_data": case.input_data.name,
        "workload": {
            "id": workload.id,
            "digest": workload.digest,
            "label": workload.label,
            "architecture": workload.architecture,
            "config_digest": workload.config_digest,
            "checkpoint": workload.checkpoint,
            "data_type": workload.data_type,
            "inputs": [str(spec) for spec in workload.inputs],
            "input_digest": workload.input_digest,
        },
    }


def _metrics(trial: Trial, outcome: TrialOutcome) -> Record:
    metrics: Record = {}
    if outcome.status is not Status.OK:
        # Where the seed's readers look for it.
        metrics["error"] = f"{outcome.status.value} in {outcome.phase}: {outcome.reason}"
    block, warmup, phases = outcome.block, outcome.warmup, _phases(outcome)
    if block and outcome.status in _RANKED:
        metrics |= summarize(block["latencies_ms"], "latency_ms")
        metrics |= _samples(block, warmup)
    metrics |= {
        "compile_time_ms": _sum_ms(phases, "trace", "lower", "compile"),
        "input_data_transfer_ms": _sum_ms(phases, "h2d"),
        "output_data_transfer_ms": _sum_ms(phases, "d2h"),
        "autotuning_enabled": "max-autotune" in trial.competitor.options,
        "device_memory_peak_mb": _megabytes(outcome.facts.get("device_memory_peak_bytes")),
        "host_memory_peak_mb": _megabytes(outcome.host_memory_peak_bytes),
        "phases": phases,
        "verification": _verification(outcome.verification),
        "final_verification": _verification(outcome.final_verification),
        "program": outcome.facts,
        "artifact_digests": outcome.artifact_digests,
    }
    return metrics


def _samples(block: Mapping[str, Any], warmup: Mapping[str, Any] | None) -> Record:
    warmups = list(warmup["latencies_ms"]) if warmup else []
    return {
        **summarize(warmups, "warmup_latency_ms"),
        "warmup_iterations": len(warmups),
        "benchmark_iterations": len(block["latencies_ms"]),
        "latencies_ms": block["latencies_ms"],
        "warmup_latencies_ms": warmups,
        "dispatch_ms": block["dispatch_ms"],
        "device_latencies_ms": block["device_ms"],
        "cpu_wall_ratio": block["cpu_ms"] / block["wall_ms"] if block["wall_ms"] else None,
    }


def _phases(outcome: TrialOutcome) -> Record:
    """Returns each phase with its time and memory; those that the stack can not tell are named."""
    hidden = outcome.facts.get("not_measurable", ())
    phases: Record = {}
    for name in [*PHASES, *sorted(set(outcome.phases) - set(PHASES))]:
        if name in hidden:
            phases[name] = NOT_MEASURABLE
        elif name in outcome.phases:
            phases[name] = outcome.phases[name]
    return phases


def _sum_ms(phases: Mapping[str, Any], *names: str) -> float | None:
    known = [phases[name]["ms"] for name in names if isinstance(phases.get(name), dict)]
    return sum(known) if known else None


def _megabytes(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / 1e6


def _verification(verification: Any) -> Record | None:
    return attrs.asdict(verification) if verification is not None else None
