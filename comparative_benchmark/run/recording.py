"""One trial as it stands in a results file."""

from collections.abc import Mapping
from typing import Any

import attrs

from comparative_benchmark.results.contention import contention_of
from comparative_benchmark.results.outcome import ProcessRecord, Status, TrialOutcome
from comparative_benchmark.results.records import Record
from comparative_benchmark.results.summary import outlier_counts, summarize
from comparative_benchmark.run.generation_metrics import generation_metrics, verification_record
from comparative_benchmark.run.trial import Competitor, Trial
from comparative_benchmark.worker.phase_names import PHASES

NOT_MEASURABLE = "not_measurable"
# An answer that is wrong has no speed, and neither has a trial that did not finish.
_RANKED = (Status.OK,)


def to_record(trial: Trial, outcome: TrialOutcome, *, run_id: str) -> Record:
    """Returns the JSON value of a finished trial."""
    last = outcome.ended_by or outcome.processes[-1]
    record: Record = {
        "run_id": run_id,
        "definition": _definition(trial),
        "status": outcome.status.value,
        "metrics": {trial.competitor.level: _metrics(trial, outcome, last)},
        "wall_s": round(outcome.wall_s, 3),
        "log_file": last.log_file or None,
        "versions": last.versions,
    }
    if outcome.profile is not None:
        record["profile"] = outcome.profile
    if outcome.timeline is not None:
        record["timeline"] = outcome.timeline
    if outcome.status is not Status.OK:
        record |= {"phase": last.phase, "reason": last.reason, "traceback": last.traceback}
    return record


def _definition(trial: Trial) -> Record:
    case, competitor, workload = trial.case, trial.competitor, trial.workload
    return {
        "benchmark_name": case.name,
        # As the seed's readers know it: the enumeration's name, not its value.
        "framework": str(case.model.model_impl.framework_type),
        "data_type": workload.data_type or case.data_type,
        "precision": trial.precision,
        "batch_size": case.batch_size,
        "compiler": competitor.compiler_label,
        "device": trial.device.name,
        "tags": list(case.tags),
        "backend": competitor.backend.name,
        "level": competitor.level,
        "options": list(competitor.options),
        "environment": _environment(competitor),
        "model": case.model.name,
        "model_parameters": dict(case.model.model_parameters),
        "verify_parameters": dict(case.verify_parameters),
        "input_data": case.input_data.name,
        "input_source": case.input_data.source_url or None,
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


def _environment(competitor: Competitor) -> Record | None:
    environment = competitor.environment
    return None if environment is None else {"name": environment.name, "python": environment.python}


def _metrics(trial: Trial, outcome: TrialOutcome, last: ProcessRecord) -> Record:
    """Metrics of the trial; compile time and phases are those of the first, cold process."""
    first = outcome.processes[0]
    metrics: Record = {}
    samples = [value for process in outcome.processes for value in process.latencies_ms]
    if outcome.status in _RANKED and samples:
        metrics |= summarize(samples, "latency_ms")
        metrics |= _samples(outcome)
    if outcome.status not in _RANKED:
        # Where the seed's readers look for it.
        metrics["error"] = f"{outcome.status.value} in {last.phase}: {last.reason}"
    if outcome.status is Status.UNSTEADY:
        # Evidence, not a speed.
        metrics["warmup_latencies_ms"] = last.warmup_latencies_ms
        metrics["processes"] = [_process(process) for process in outcome.processes]
    phases = _phases(first)
    metrics |= {
        "compile_time_ms": _compile_ms(first),
        "warm_compile_time_ms": _compile_times(outcome, cold=False),
        "compile": {
            "cold_ms": _compile_times(outcome, cold=True),
            "warm_ms": _compile_times(outcome, cold=False),
            "processes": [_compile(process) for process in outcome.processes],
        },
        "input_data_transfer_ms": _sum_ms(phases, "h2d"),
        "output_data_transfer_ms": _sum_ms(phases, "d2h"),
        "autotuning_enabled": "max-autotune" in trial.competitor.options,
        "device_memory_peak_mb": _megabytes(last.facts.get("device_memory_peak_bytes")),
        "host_memory_peak_mb": _megabytes(_largest_peak(outcome)),
        "phases": phases,
        "verification": verification_record(last.verification),
        "final_verification": verification_record(last.final_verification),
        "program": last.facts,
        "workload_cost": attrs.asdict(outcome.workload_cost),
        "artifact_digests": outcome.artifact_digests,
        "artifact_source": outcome.artifact_source,
        "program_source": outcome.program_source,
        "race": outcome.race,
        "stop_reason": outcome.stop_reason,
    }
    if (generation := generation_metrics(trial, outcome)) is not None:
        metrics["generation"] = generation
    return metrics


def _samples(outcome: TrialOutcome) -> Record:
    samples = [value for process in outcome.processes for value in process.latencies_ms]
    blocks = [block for process in outcome.processes for block in process.blocks]
    warmups = [value for p in outcome.processes for value in p.warmup_latencies_ms]
    wall_ms = sum(block["wall_ms"] for block in blocks)
    return {
        **summarize(warmups, "warmup_latency_ms"),
        "warmup_iterations": len(warmups),
        "benchmark_iterations": len(samples),
        "latencies_ms": samples,
        "warmup_latencies_ms": warmups,
        "dispatch_ms": [value for block in blocks for value in block["dispatch_ms"]],
        "device_latencies_ms": [value for block in blocks for value in block["device_ms"]],
        "contention": contention_of(blocks),
        "outliers": outlier_counts(process.latencies_ms for process in outcome.processes),
        "cpu_wall_ratio": sum(b["cpu_ms"] for b in blocks) / wall_ms if wall_ms else None,
        "processes": [_process(process) for process in outcome.processes],
    }


def _process(process: ProcessRecord) -> Record:
    return {
        "blocks": [
            {
                "round": block["round"],
                "latencies_ms": block["latencies_ms"],
                "cpu_wall_ratio": block["cpu_ms"] / block["wall_ms"] if block["wall_ms"] else None,
                "contended": block["conditions"]["contended"],
                "conditions": block["conditions"],
            }
            for block in process.blocks
        ],
        "warmup_iterations": len(process.warmup_latencies_ms),
        "stop_reason": process.stop_reason,
        "timer_ns": process.timer_ns,
        "steadiness": process.steadiness,
        "compile_time_ms": _compile_ms(process),
        "artifact_sha256": process.facts.get("artifact_sha256"),
        "cache_hits": process.facts.get("cache_hits"),
        "cache_misses": process.facts.get("cache_misses"),
        "host_memory_peak_mb": _megabytes(process.host_memory_peak_bytes),
    }


def _phases(process: ProcessRecord) -> Record:
    """Returns each phase with its time and memory; those that the stack can not tell are named."""
    hidden = process.facts.get("not_measurable", ())
    phases: Record = {}
    for name in [*PHASES, *sorted(set(process.phases) - set(PHASES))]:
        if name in hidden:
            phases[name] = NOT_MEASURABLE
        elif name in process.phases:
            phases[name] = process.phases[name]
    return phases


def _compile_times(outcome: TrialOutcome, *, cold: bool) -> list[float]:
    times = [_compile_ms(process) for process in outcome.processes if process.cold is cold]
    return [value for value in times if value is not None]


def _compile(process: ProcessRecord) -> Record:
    phases = _phases(process)
    return {
        "cold": process.cold,
        **{f"{name}_ms": _sum_ms(phases, name) for name in ("trace", "lower", "compile")},
        "cache_hits": process.facts.get("cache_hits"),
        "cache_misses": process.facts.get("cache_misses"),
        "artifact_sha256": process.facts.get("artifact_sha256"),
        "artifact_size_bytes": process.facts.get("artifact_size_bytes"),
    }


def _compile_ms(process: ProcessRecord) -> float | None:
    return _sum_ms(_phases(process), "trace", "lower", "compile")


def _largest_peak(outcome: TrialOutcome) -> int | None:
    peaks = [process.host_memory_peak_bytes for process in outcome.processes]
    return max((peak for peak in peaks if peak is not None), default=None)


def _sum_ms(phases: Mapping[str, Any], *names: str) -> float | None:
    known = [phases[name]["ms"] for name in names if isinstance(phases.get(name), dict)]
    return sum(known) if known else None


def _megabytes(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / 1e6
