"""Compares two results of one case: their ratio and verdict, or why there is no ratio."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, TypeGuard

from msgspec import UNSET

from comparative_benchmark.analysis.stats.analysis import (
    CLOSE,
    MIN_PROCESSES,
    Interval,
    LogRatio,
    SampleError,
    Verdict,
    latency_interval,
    paired_ratio,
    unpaired_ratio,
    verdict,
)
from comparative_benchmark.analysis.stats.resemblance import resembles
from comparative_benchmark.results.case import COLD_COMPILE, Case
from comparative_benchmark.results.comparing.comparison import Comparison, Fate
from comparative_benchmark.results.record import Block, Metrics, Status

# Trials with a larger share of contended blocks do not support a verdict.
_MOST_CONTENDED = 0.5


def samples_of(metrics: Metrics) -> list[list[float]]:
    """Returns the samples of each process in ms, of the measured quantity."""
    return compile_samples(metrics) if metrics.compile_only else process_samples(metrics)


def process_samples(metrics: Metrics) -> list[list[float]]:
    """Returns the latencies of each process in ms, or raises `SampleError`."""
    if metrics.processes:
        processes = [process.latencies_ms for process in metrics.processes]
        if all(processes):
            return processes
    elif metrics.latencies_ms:
        # Older files do not separate processes.
        return [list(metrics.latencies_ms)]
    raise SampleError("no samples")


def compile_samples(metrics: Metrics) -> list[list[float]]:
    """Returns the cold compile time of each process in ms, or raises `SampleError`."""
    times = metrics.compile.cold_ms if metrics.compile else ()
    if not times:
        raise SampleError("no samples")
    if None in times:
        raise SampleError("a sample is not a number")
    return [[value] for value in times if value is not None]


def compiles_nothing(metrics: Metrics) -> bool:
    """Returns whether a compile-only result had nothing to compile, as in eager execution."""
    times = metrics.compile.cold_ms if metrics.compile else (0.0,)
    return all(value is None for value in times)


def paired_rounds(old: Metrics, new: Metrics) -> list[list[tuple[float, float]]] | None:
    """Returns (candidate, baseline) block medians by process and round; None if not one race."""
    if not old.race.id or old.race.id != new.race.id:
        return None
    if not (old.race.interleaved and new.race.interleaved and old.processes and new.processes):
        return None
    replicates = []
    for old_process, new_process in zip(old.processes, new.processes, strict=False):
        baseline, candidate = (_round_medians(p.blocks) for p in (old_process, new_process))
        rounds = [(candidate[key], baseline[key]) for key in candidate if key in baseline]
        if rounds:
            replicates.append(rounds)
    # If few replicates can be paired after interruptions, unpaired processes give more information.
    fewest = min(MIN_PROCESSES, len(old.processes), len(new.processes))
    return replicates if replicates and len(replicates) >= fewest else None


def disturbance(baseline: Metrics, candidate: Metrics) -> str:
    """Returns a message if most blocks of one side were contended, else "".

    Contention slows programs down unequally, whatever the order of the blocks: a program that uses
    all CPUs loses more than one that uses a single CPU.
    """
    for side, metrics in (("baseline", baseline), ("candidate", candidate)):
        blocks = _blocks(metrics)
        share = sum(bool(block.contended) for block in blocks) / max(len(blocks), 1)
        if share > _MOST_CONTENDED:
            return f"disturbed: other processes used the CPUs in {share:.0%} of the {side}'s blocks"
    return ""


def mean_mhz(metrics: Metrics) -> float | None:
    """Returns the mean clock rate during the blocks in MHz; None if it was not recorded."""
    clocks = [block.conditions.mean_mhz for block in _blocks(metrics) if block.conditions]
    known = [clock for clock in clocks if is_positive(clock)]
    return sum(known) / len(known) if known else None


def quotient(new: float | None, old: float | None) -> float | None:
    """Returns new / old; None if either is missing or not positive."""
    return new / old if is_positive(new) and is_positive(old) else None


def is_positive(value: Any) -> TypeGuard[float]:
    """Returns whether a value is a number above zero that is safe to divide by."""
    # Between these limits every quotient is finite.
    return isinstance(value, (int, float)) and 1e-100 < value < 1e100


def _blocks(metrics: Metrics) -> list[Block]:
    return [block for process in metrics.processes or () for block in process.blocks]


def _round_medians(blocks: Iterable[Block]) -> dict[int, float]:
    rounds: defaultdict[int, list[float]] = defaultdict(list)
    for block in blocks:
        if block.round is not None:
            rounds[block.round] += block.latencies_ms
    # Ten times as fast as numpy for so few values, and called often.
    return {key: float(statistics.median(values)) for key, values in rounds.items()}


# Compilers read files, start threads and allocate, and each compilation is a single sample. Their
# times are noisier than latencies, which are medians of many.
COMPILE_THRESHOLD = 0.05


def compared(old: Case, new: Case, *, threshold: float, changed_models: bool = False) -> Comparison:
    """Compares a case with its baseline; never raises because of their content.

    Args:
      old: the baseline.
      new: the candidate.
      threshold: smaller differences in latency count as noise. For compile times,
        `COMPILE_THRESHOLD` applies unless this is larger.
      changed_models: whether to compare different workloads of the same name, with a note.
    """
    if new.status is Status.WRONG_OUTPUT:
        return without_ratio(new, Fate.WRONG, new.why)
    if old.status is new.status is Status.UNSUPPORTED:
        return without_ratio(new, Fate.UNSUPPORTED, new.why)
    for case, side in ((old, "baseline"), (new, "candidate")):
        if case.status is not Status.OK:
            return without_ratio(new, Fate.MISSING, f"{side}: {case.why}")
        if (why := case.metrics.not_ranked) is not UNSET:
            return without_ratio(new, Fate.INCOMPARABLE, f"{side} is not ranked: {why}")
    has_changed = changed_models and _is_changed(old, new)
    if differ := _differences(old, new, has_changed=has_changed):
        return without_ratio(new, Fate.INCOMPARABLE, differ)
    compiling = new.quantity == COLD_COMPILE
    if compiling and all(compiles_nothing(case.metrics) for case in (old, new)):
        return without_ratio(new, Fate.UNSUPPORTED, "nothing to compile")
    samples: dict[str, list[list[float]]] = {}
    intervals: dict[str, Interval] = {}
    for case, side in ((old, "baseline"), (new, "candidate")):
        try:
            samples[side] = samples_of(case.metrics)
            intervals[side] = latency_interval(samples[side])
        except SampleError as error:
            of = "cold compile times: " if compiling else ""
            return without_ratio(new, Fate.INCOMPARABLE, f"{side}: {of}{error}")
    before, after = samples["baseline"], samples["candidate"]
    try:
        log_ratio, paired = _ratio(old, new, before, after)
    except SampleError as error:
        return without_ratio(new, Fate.INCOMPARABLE, str(error))
    # The ratio of two finite latencies may overflow.
    ratio = log_ratio.interval()
    outcome, reason = verdict(
        ratio, threshold=max(threshold, COMPILE_THRESHOLD) if compiling else threshold
    )
    if outcome is Verdict.INCOMPARABLE:
        return without_ratio(new, Fate.INCOMPARABLE, reason)
    disturbed = "" if compiling else disturbance(old.metrics, new.metrics)
    doubt = disturbed or _dependence(log_ratio)
    return Comparison(
        **_identity(new),
        fate=Fate.COMPARED,
        verdict=Verdict.UNCLEAR if doubt else outcome,
        withheld=outcome if doubt and outcome is not Verdict.UNCLEAR else None,
        disturbed=bool(disturbed),
        reason=(doubt or reason) + "; the model has changed" * has_changed,
        arithmetic=_in_fewer_bits(old, new),
        baseline_ms=intervals["baseline"],
        candidate_ms=intervals["candidate"],
        ratio=ratio,
        log_ratio=log_ratio,
        base=old.key,
        paired=paired,
        p_value=log_ratio.p_value,
        # A compile-only result has a better estimate than the quotient of two single times.
        compile_ratio=None
        if compiling
        else quotient(new.metrics.compile_time_ms, old.metrics.compile_time_ms),
        memory_ratio=_memory_ratio(new.metrics, old.metrics),
    )


def _memory_ratio(new: Metrics, old: Metrics) -> float | None:
    """Returns the ratio of the device's peaks, or of the host's if the device has none."""
    on_device = quotient(new.device_memory_peak_mb, old.device_memory_peak_mb)
    return on_device or quotient(new.host_memory_peak_mb, old.host_memory_peak_mb)


def without_ratio(case: Case | None, fate: Fate, reason: str) -> Comparison:
    """Returns a comparison without a ratio; identity fields are `?` if there is no case."""
    identity: dict[str, Any] = _identity(case) if case else dict.fromkeys(_IDENTITY, "?")
    return Comparison(**identity, fate=fate, verdict=Verdict.INCOMPARABLE, reason=reason)


_IDENTITY = ("workload", "label", "competitor", "framework", "device", "quantity")


def _identity(case: Case) -> dict[str, Any]:
    return {name: getattr(case, name) for name in _IDENTITY}


def _ratio(
    old: Case, new: Case, before: list[list[float]], after: list[list[float]]
) -> tuple[LogRatio, bool]:
    """Returns the ratio, and whether it is based on paired rounds."""
    rounds = None
    if new.quantity != COLD_COMPILE:
        rounds = paired_rounds(old.metrics, new.metrics)
    if rounds:
        return paired_ratio(rounds), True
    return unpaired_ratio(after, before), False


def _dependence(ratio: LogRatio) -> str:
    """Returns a message if the interval of a close ratio is too narrow, else ""."""
    close = abs(ratio.estimate) <= math.log(CLOSE)
    if close and not ratio.own and resembles(ratio.shared):
        return "consecutive processes are correlated, so the interval is too narrow"
    return ""


def _in_fewer_bits(old: Case, new: Case) -> str:
    """Returns a label if a stack is compared with its quantised self, else "".

    Recipes are measured for this comparison. Compared with another stack, the arithmetic would
    differ as well.
    """
    before, after = old.result.definition, new.result.definition
    same = before.backend == after.backend and before.framework == after.framework
    if same and old.data_type == before.data_type == after.data_type != new.data_type:
        return f"{new.data_type} vs {old.data_type}"
    return ""


def _is_changed(old: Case, new: Case) -> bool:
    """Returns whether two cases have the same name but different content."""
    names = {case.result.definition.benchmark_name for case in (old, new)}
    return len(names) == 1 and old.workload != new.workload


def _differences(old: Case, new: Case, *, has_changed: bool) -> str:
    """Returns a difference that makes a ratio meaningless; empty if there is none."""
    if old.data_type != new.data_type and not _in_fewer_bits(old, new):
        return f"different data types: {old.data_type} and {new.data_type}"
    if old.workload != new.workload and not has_changed:
        return f"different workloads: {old.label} and {new.label} (digests differ)"
    if old.quantity != new.quantity:
        return f"different measurements: {old.quantity} and {new.quantity}"
    if old.machine != new.machine:
        return f"different machines: {old.machine} and {new.machine}"
    threads = [case.threads for case in (old, new)]
    if threads[0] != threads[1]:
        return f"different thread counts: {threads[0]} and {threads[1]}"
    return ""
