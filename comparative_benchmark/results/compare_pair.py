"""One case of two results: their ratio and its verdict, or the reason why there is none."""

import math
from typing import Any

from msgspec import UNSET

from comparative_benchmark.results.case import COLD_COMPILE, Case
from comparative_benchmark.results.compare_samples import (
    compiles_nothing,
    disturbance,
    paired_rounds,
    quotient,
    samples_of,
)
from comparative_benchmark.results.comparison import Comparison, Fate
from comparative_benchmark.results.record import Metrics, Status
from comparative_benchmark.stats.analysis import (
    CLOSE,
    Interval,
    LogRatio,
    SampleError,
    Verdict,
    latency_interval,
    paired_ratio,
    unpaired_ratio,
    verdict,
)
from comparative_benchmark.stats.resemblance import resembles

# Compilers read files, start threads and allocate, and one compilation is one sample: their times
# are noisier than latencies, which are medians of many.
COMPILE_THRESHOLD = 0.05


def compared(old: Case, new: Case, *, threshold: float, changed_models: bool = False) -> Comparison:
    """Returns the comparison of a case with its baseline; never raises for what they hold.

    Args:
      old: the baseline.
      new: the candidate.
      threshold: below which a difference of latencies is noise; of compile times it is
        `COMPILE_THRESHOLD`, unless this one is larger.
      changed_models: compare another workload of the same name, too, and say so.
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
    # Latencies that a float can hold may have a ratio that it cannot.
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
        # A compile-only result has a better figure than the quotient of two single times.
        compile_ratio=None
        if compiling
        else quotient(new.metrics.compile_time_ms, old.metrics.compile_time_ms),
        memory_ratio=_memory_ratio(new.metrics, old.metrics),
    )


def _memory_ratio(new: Metrics, old: Metrics) -> float | None:
    """Returns the ratio of the device's peaks; of the host's where the device has none."""
    on_device = quotient(new.device_memory_peak_mb, old.device_memory_peak_mb)
    return on_device or quotient(new.host_memory_peak_mb, old.host_memory_peak_mb)


def without_ratio(case: Case | None, fate: Fate, reason: str) -> Comparison:
    """Returns the comparison of a case that has no ratio; `?` for what there is no case of."""
    identity: dict[str, Any] = _identity(case) if case else dict.fromkeys(_IDENTITY, "?")
    return Comparison(**identity, fate=fate, verdict=Verdict.INCOMPARABLE, reason=reason)


_IDENTITY = ("workload", "label", "competitor", "framework", "device", "quantity")


def _identity(case: Case) -> dict[str, Any]:
    return {name: getattr(case, name) for name in _IDENTITY}


def _ratio(
    old: Case, new: Case, before: list[list[float]], after: list[list[float]]
) -> tuple[LogRatio, bool]:
    """Returns the ratio, and whether it is of paired rounds."""
    rounds = None
    if new.quantity != COLD_COMPILE:
        rounds = paired_rounds(old.metrics, new.metrics)
    if rounds:
        return paired_ratio(rounds), True
    return unpaired_ratio(after, before), False


def _dependence(ratio: LogRatio) -> str:
    """Says that the interval of a close ratio is too narrow; empty if nothing shows it."""
    close = abs(ratio.estimate) <= math.log(CLOSE)
    if close and not ratio.own and resembles(ratio.shared):
        return "consecutive processes are correlated, so the interval is too narrow"
    return ""


def _in_fewer_bits(old: Case, new: Case) -> str:
    """Says so where a stack is compared with itself, quantised; else empty.

    That is the question that a recipe is measured for. Beside another stack its speed would be
    that of another arithmetic.
    """
    before, after = old.result.definition, new.result.definition
    same = before.backend == after.backend and before.framework == after.framework
    if same and old.data_type == before.data_type == after.data_type != new.data_type:
        return f"{new.data_type} vs {old.data_type}"
    return ""


def _is_changed(old: Case, new: Case) -> bool:
    """Tells whether a case is one of the same name with another content."""
    names = {case.result.definition.benchmark_name for case in (old, new)}
    return len(names) == 1 and old.workload != new.workload


def _differences(old: Case, new: Case, *, has_changed: bool) -> str:
    """Says what differs that a ratio must not hide; empty if nothing does."""
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
