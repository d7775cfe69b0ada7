"""Compares results: two files case by case, or the competitors of one file with a baseline.

A case is a workload by one competitor on one device. What cannot be compared says why; only
verified, finished trials have a ratio, and nothing that goes wrong here becomes a verdict.
"""

import enum
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from comparative_benchmark.harness.resampling import SampleError
from comparative_benchmark.harness.statistics import (
    NOISE_THRESHOLD,
    Interval,
    Verdict,
    latency_interval,
    mann_whitney_p,
    ratio_interval,
    unpaired_ratio_interval,
    verdict,
)
from comparative_benchmark.results.compare_cases import (
    Case,
    cases_of,
    contention,
    matched,
    paired_rounds,
    process_samples,
    quotient,
    read_document,
)
from comparative_benchmark.results.records import Record

__all__ = [
    "Comparison",
    "Fate",
    "Summary",
    "compare_documents",
    "compare_to_baseline",
    "exit_code",
    "read_document",
    "summarize_comparisons",
]

DEFAULT_BASELINE = "pt_inductor:eager"
_SEED = 20_130_620


class Fate(enum.Enum):
    """How a comparison counts in the summary."""

    COMPARED = "compared"
    INCOMPARABLE = "incomparable"
    MISSING = "missing"
    WRONG = "wrong"
    UNSUPPORTED = "unsupported"


@attrs.frozen(kw_only=True)
class Comparison:
    """One case against its baseline.

    Attributes:
      workload: digest; `label` for people.
      competitor: `backend:compiler`; `framework` and `device` it ran with.
      baseline_ms, candidate_ms: latencies with 95 % intervals; None where there are none.
      ratio: candidate / baseline with the 98 % interval that the verdict rests on.
      paired: whether the ratio is from interleaved rounds of one race.
      p_value: Mann-Whitney over process medians; None where they are too few to decide.
      compile_ratio, memory_ratio: candidate / baseline; None where one side has no figure.
    """

    workload: str
    label: str
    competitor: str
    framework: str
    device: str
    fate: Fate
    verdict: Verdict
    reason: str
    baseline_ms: Interval | None = None
    candidate_ms: Interval | None = None
    ratio: Interval | None = None
    paired: bool = False
    p_value: float | None = None
    compile_ratio: float | None = None
    memory_ratio: float | None = None

    @property
    def name(self) -> str:
        """What a person calls the case."""
        return f"{self.label} {self.competitor} ({self.framework}, {self.device})"


@attrs.frozen(kw_only=True)
class Summary:
    """What all comparisons come to.

    Attributes:
      geomean: of the ratios of all compared cases, unclipped; None if there are none.
      cases: how many there should be; `passed` of them could be compared.
      faster, slower: names of those with that verdict.
      missing, wrong, incomparable: names of those without a ratio, each with its reason.
    """

    geomean: float | None
    cases: int
    passed: int
    faster: tuple[str, ...]
    slower: tuple[str, ...]
    missing: tuple[str, ...]
    wrong: tuple[str, ...]
    incomparable: tuple[str, ...]

    @property
    def pass_rate(self) -> float | None:
        """Share of the cases that could be compared."""
        return self.passed / self.cases if self.cases else None


def compare_documents(
    baseline: Mapping[str, Any],
    candidate: Mapping[str, Any],
    *,
    threshold: float = NOISE_THRESHOLD,
    seed: int = _SEED,
) -> list[Comparison]:
    """Returns every case of either document, the candidate's against the baseline's.

    A case is known by workload digest, backend, compiler, device and framework; where that finds
    none, by benchmark name or by architecture and batch size, to say what differs. Of a case that
    a file holds more than once, the latest counts. Ratios are unpaired, unless both are of one
    race: the machine may have changed between the files, which no statistics can tell.
    """
    before, unreadable_before = cases_of(baseline, "the baseline")
    after, unreadable_after = cases_of(candidate, "the candidate")
    versions = [document.get("schema_version") for document in (baseline, candidate)]
    differ = f"schema version {versions[0]} against {versions[1]}"
    found: list[Comparison] = []
    for old, new in matched(before, after):
        if versions[0] != versions[1]:
            found.append(_without_ratio(new or old, Fate.INCOMPARABLE, differ))
        elif old is None or new is None:
            side = "baseline" if old is None else "candidate"
            found.append(_without_ratio(new or old, Fate.MISSING, f"not in the {side}"))
        else:
            found.append(_compared(old, new, threshold=threshold, seed=seed))
    return found + _unreadable([*unreadable_before, *unreadable_after])


def compare_to_baseline(
    records: Iterable[Record],
    baseline: str = DEFAULT_BASELINE,
    *,
    threshold: float = NOISE_THRESHOLD,
    seed: int = _SEED,
) -> list[Comparison]:
    """Returns each competitor of a workload against the baseline competitor of that workload.

    Paired by process and round where both are of one race, else unpaired. A workload that the
    baseline ran in several frameworks is compared within the same framework; where that has no
    baseline, with the only other one.
    """
    cases, unreadable = cases_of({"benchmarks": list(records)}, "the results")
    found = _unreadable(unreadable)
    groups: defaultdict[Hashable, list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.workload, case.device].append(case)
    for group in groups.values():
        bases = [case for case in group if case.competitor == baseline]
        for base in bases:
            if base.status == "wrong_output":
                found.append(_without_ratio(base, Fate.WRONG, base.why))
        for case in group:
            if case in bases:
                continue
            same = [base for base in bases if base.framework == case.framework] or bases
            if len(same) != 1:
                reason = f"no result of {baseline}" if not same else f"several {baseline} results"
                found.append(_without_ratio(case, Fate.MISSING, reason))
            else:
                found.append(_compared(same[0], case, threshold=threshold, seed=seed))
    return found


def summarize_comparisons(comparisons: Sequence[Comparison]) -> Summary:
    """Returns the geometric mean over the common set, never without counts and what is left out.

    Ratios have no other mean that does not depend on the choice of the baseline (Fleming &
    Wallace 1986); it hides the absolute times, which is why tables print them beside it. A case
    that neither side supports is not counted.
    """
    counted = [item for item in comparisons if item.fate is not Fate.UNSUPPORTED]
    ratios = [item.ratio.estimate for item in counted if item.ratio is not None]
    logs = [math.log(ratio) for ratio in ratios]
    named: defaultdict[Any, list[str]] = defaultdict(list)
    for item in counted:
        named[item.verdict].append(item.name)
        named[item.fate].append(f"{item.name}: {item.reason}")
    return Summary(
        geomean=math.exp(math.fsum(logs) / len(logs)) if logs else None,
        cases=len(counted),
        passed=len(ratios),
        faster=tuple(named[Verdict.FASTER]),
        slower=tuple(named[Verdict.SLOWER]),
        missing=tuple(named[Fate.MISSING]),
        wrong=tuple(named[Fate.WRONG]),
        incomparable=tuple(named[Fate.INCOMPARABLE]),
    )


def exit_code(summary: Summary) -> int:
    """Returns 2 for a regression or a wrong output, 3 for missing data, 0 if all is fine.

    Data that cannot be compared is missing, and so is an empty comparison: never green.
    """
    if summary.slower or summary.wrong:
        return 2
    if summary.missing or summary.incomparable or not summary.passed:
        return 3
    return 0


def _compared(old: Case, new: Case, *, threshold: float, seed: int) -> Comparison:
    if new.status == "wrong_output":
        return _without_ratio(new, Fate.WRONG, new.why)
    if old.status == new.status == "unsupported":
        return _without_ratio(new, Fate.UNSUPPORTED, new.why)
    for case, side in ((old, "baseline"), (new, "candidate")):
        if case.status != "ok":
            return _without_ratio(new, Fate.MISSING, f"{side}: {case.why}")
    if differ := _differences(old, new):
        return _without_ratio(new, Fate.INCOMPARABLE, differ)
    samples: dict[str, list[list[float]]] = {}
    for case, side in ((old, "baseline"), (new, "candidate")):
        try:
            samples[side] = process_samples(case.metrics)
            latency_interval(samples[side], seed=seed)
        except SampleError as error:
            return _without_ratio(new, Fate.INCOMPARABLE, f"{side}: {error}")
    before, after = samples["baseline"], samples["candidate"]
    paired = paired_rounds(old.metrics, new.metrics)
    try:
        ratio = (
            ratio_interval(paired, seed=seed)
            if paired
            else unpaired_ratio_interval(after, before, seed=seed)
        )
    except SampleError as error:
        return _without_ratio(new, Fate.INCOMPARABLE, str(error))
    # Latencies that a float can hold may have a ratio that it cannot.
    outcome, reason = verdict(ratio, threshold=threshold)
    if outcome is Verdict.INCOMPARABLE:
        return _without_ratio(new, Fate.INCOMPARABLE, reason)
    medians = [[float(np.median(process)) for process in side] for side in (after, before)]
    return Comparison(
        **_identity(new),
        fate=Fate.COMPARED,
        verdict=outcome,
        reason=reason + contention(old.metrics, new.metrics),
        baseline_ms=latency_interval(before, seed=seed),
        candidate_ms=latency_interval(after, seed=seed),
        ratio=ratio,
        paired=bool(paired),
        p_value=mann_whitney_p(*medians),
        compile_ratio=quotient(new.metrics, old.metrics, "compile_time_ms"),
        memory_ratio=quotient(
            new.metrics, old.metrics, "device_memory_peak_mb", "host_memory_peak_mb"
        ),
    )


def _unreadable(reasons: Iterable[str]) -> list[Comparison]:
    return [_without_ratio(None, Fate.INCOMPARABLE, reason) for reason in reasons]


def _without_ratio(case: Case | None, fate: Fate, reason: str) -> Comparison:
    identity: dict[str, Any] = _identity(case) if case else dict.fromkeys(_IDENTITY, "?")
    return Comparison(**identity, fate=fate, verdict=Verdict.INCOMPARABLE, reason=reason)


_IDENTITY = ("workload", "label", "competitor", "framework", "device")


def _identity(case: Case) -> dict[str, Any]:
    return {name: getattr(case, name) for name in _IDENTITY}


def _differences(old: Case, new: Case) -> str:
    """Says what differs that a ratio must not hide; empty if nothing does."""
    if old.data_type != new.data_type:
        return f"data type {old.data_type} against {new.data_type}"
    if old.workload != new.workload:
        return f"different workloads: {old.label} against {new.label}, digests differ"
    machines = [_machine(case.host) for case in (old, new)]
    if machines[0] != machines[1]:
        return f"different machines: {machines[0]} against {machines[1]}"
    threads = [case.host.get("threads") for case in (old, new)]
    if threads[0] != threads[1]:
        return f"different thread counts: {threads[0]} against {threads[1]}"
    return ""


def _machine(host: Mapping[str, Any]) -> str:
    return str(host.get("cpu_model") or host.get("architecture") or "unknown")
