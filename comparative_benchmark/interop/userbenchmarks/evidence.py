"""A regression detector that uses confidence intervals for metrics with samples.

Latencies and compile times have samples from several processes. They changed if the whole 98 %
confidence interval of the ratio lies on one side of 1, and the estimate exceeds the threshold.
Metrics without samples (memory, error, statuses) are compared by their single values.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from comparative_benchmark.analysis.stats.analysis import (
    SampleError,
    Verdict,
    unpaired_ratio,
    verdict,
)
from comparative_benchmark.interop.userbenchmarks.authoring import TorchBenchABTestResult, detector
from comparative_benchmark.reporting.formats.interface import CARRIER
from comparative_benchmark.reporting.formats.torchbench import LATENCY, metric_key
from comparative_benchmark.reporting.history.rows import PortableResult

# Alert thresholds: smallest relative change per kind of metric.
LATENCY_THRESHOLD = 0.03
COMPILE_THRESHOLD = 0.1
POINT_THRESHOLD = 0.07
# Rounding alone may change the error of a correct output by this factor.
ERROR_FACTOR = 2.0

Samples = Sequence[Sequence[float]]


def run(control: Mapping[str, Any], treatment: Mapping[str, Any]) -> TorchBenchABTestResult:
    """Returns the changes between two metrics documents of this suite."""
    old, new = _samples_by_key(control), _samples_by_key(treatment)

    def judge(metric: str, before: float | str, after: float | str) -> float | str | None:
        if isinstance(before, str) or isinstance(after, str):
            return None if before == after else f"{before} -> {after}"
        if metric in old and metric in new:
            return _by_samples(metric, old[metric], new[metric])
        base, _, name = metric.rpartition("metric=")
        latency = f"{base}metric={LATENCY}"
        # Rates are the inverse of the latency, whose samples decide.
        if name in ("throughput", "tokens_per_s") and latency in old and latency in new:
            return None
        return _by_points(metric, before, after)

    return detector(judge)(control, treatment)


def _by_samples(metric: str, old: Samples, new: Samples) -> float | None:
    """Returns the relative change, or None if it is not significant."""
    try:
        interval = unpaired_ratio(new, old).interval()
    except SampleError:
        return None
    is_latency = metric.endswith(f"metric={LATENCY}")
    threshold = LATENCY_THRESHOLD if is_latency else COMPILE_THRESHOLD
    outcome, _ = verdict(interval, threshold=threshold, processes=min(len(old), len(new)))
    is_change = outcome in (Verdict.FASTER, Verdict.SLOWER)
    return interval.estimate - 1 if is_change else None


def _by_points(metric: str, before: float, after: float) -> float | str | None:
    if before <= 0:
        return None if before == after else f"{before} -> {after}"
    delta = after / before - 1
    if metric.endswith("metric=relative_rmse"):
        return delta if not 1 / ERROR_FACTOR <= after / before <= ERROR_FACTOR else None
    return delta if abs(delta) > POINT_THRESHOLD else None


def _samples_by_key(document: Mapping[str, Any]) -> dict[str, Samples]:
    """Returns the samples behind each metric, by process; keys are metric keys."""
    samples: dict[str, Samples] = {}
    for result in _portable_results(document):
        if result.samples_ms:
            samples[metric_key(result, LATENCY)] = result.samples_ms
        for name, times in (
            ("compile_time_ms", result.compile_ms),
            ("warm_compile_time_ms", result.warm_compile_ms),
        ):
            if times:
                samples[metric_key(result, name)] = [[time] for time in times]
    return samples


def _portable_results(document: Mapping[str, Any]) -> list[PortableResult]:
    carrier = document.get(CARRIER)
    items = carrier.get("results", []) if isinstance(carrier, dict) else []
    try:
        return msgspec.convert(items, list[PortableResult])
    except msgspec.ValidationError:
        # Ignore damaged samples and compare single values instead.
        return []
