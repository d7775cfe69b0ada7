"""Comparisons of two results of one case, and the summary of all cases with the exit code.

A comparison has a ratio and a verdict, or the reason for a missing ratio.
"""

import contextlib
import enum
import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeGuard

import attrs
from msgspec import UNSET

from comparative_benchmark.analysis.stats.analysis import (
    CLOSE,
    MIN_PROCESSES,
    Interval,
    LogRatio,
    SampleError,
    Verdict,
    decisive,
    latency_interval,
    mean_ratio,
    paired_ratio,
    unpaired_ratio,
    verdict,
)
from comparative_benchmark.analysis.stats.steadiness import resembles
from comparative_benchmark.results.case import COLD_COMPILE, LATENCY, Case
from comparative_benchmark.results.record import Block, Metrics, Status

# A mean is meaningless if other processes disturbed this share of its cases.
MOST_DISTURBED = 0.1


class Fate(enum.Enum):
    """How a comparison counts in the summary."""

    COMPARED = "compared"
    INCOMPARABLE = "incomparable"
    MISSING = "missing"
    WRONG = "wrong"
    UNSUPPORTED = "unsupported"


@attrs.frozen(kw_only=True)
class Comparison:
    """A case compared with its baseline.

    Attributes:
      workload: digest of the workload; `label` is its display name.
      competitor: `backend:compiler`, with `@name` of its environment; `framework` and `device`
        complete the identity.
      quantity: the measured quantity: `latency`, or `cold compile` for compile-only results.
      baseline_ms, candidate_ms: the quantity with 95 % intervals; None without a ratio.
      ratio: candidate / baseline with the 98 % interval that the verdict is based on.
      paired: whether the ratio is based on interleaved rounds of one race.
      log_ratio: log ratio with the contribution of each process to its error; `base` distinguishes
        ratios with different baseline processes.
      p_value: p-value of the test behind the verdict; None if there are too few processes.
      compile_ratio, memory_ratio: candidate / baseline; None if either value is missing.
      arithmetic: set if a stack is compared with its quantised self, e.g. `int8wo vs fp32`: the
        ratio is then the effect of the recipe, and is excluded from means and rankings; else empty.
      withheld: the verdict based on the ratio alone, if the final verdict is `unclear` because the
        machine may have caused the difference (see `compare_documents`), because it may be chance
        among all pairs of a workload's competitors, because other processes disturbed the race, or
        because consecutive processes of the race are correlated; else None.
      disturbed: whether other processes used the CPUs in most blocks of either side; the verdict is
        then `unclear`.
    """

    workload: str
    label: str
    competitor: str
    framework: str
    device: str
    quantity: str = LATENCY
    fate: Fate
    verdict: Verdict
    reason: str
    baseline_ms: Interval | None = None
    candidate_ms: Interval | None = None
    ratio: Interval | None = None
    log_ratio: LogRatio | None = None
    base: Hashable = None
    paired: bool = False
    p_value: float | None = None
    compile_ratio: float | None = None
    memory_ratio: float | None = None
    arithmetic: str = ""
    withheld: Verdict | None = None
    disturbed: bool = False

    @property
    def word(self) -> str:
        """The verdict as shown in tables, e.g. `faster` or `unclear (disturbed)`."""
        return f"{self.verdict.value} (disturbed)" if self.disturbed else self.verdict.value

    def withhold(self, reason: str) -> "Comparison":
        """Returns the comparison as `unclear` with a reason; moves its verdict to `withheld`."""
        return attrs.evolve(self, verdict=Verdict.UNCLEAR, reason=reason, withheld=self.verdict)

    @property
    def is_decided(self) -> bool:
        """Whether the verdict is `faster` or `slower`."""
        return self.verdict in (Verdict.FASTER, Verdict.SLOWER)

    @property
    def name(self) -> str:
        """Display name of the case."""
        return f"{self.label} {self.competitor} ({self.framework}, {self.device})"


@attrs.frozen(kw_only=True)
class Summary:
    """Summary of all comparisons.

    Attributes:
      geomean: geometric mean of the latency ratios of all compared cases, unclipped; None without
        ratios.
      compile_geomean: the same for cold compile times, over `compiled` of the passed cases.
      geomean_interval, compile_geomean_interval: their 98 % intervals.
      cases: expected number of cases; `passed` of them could be compared.
      faster, slower: names of cases with that verdict.
      regressions: names of cases that are significantly slower among all compared cases.
      disturbed: names of cases without a verdict because other processes disturbed the race.
      missing, wrong, incomparable: names of cases without a ratio, each with its reason.
    """

    geomean: float | None
    compile_geomean: float | None
    geomean_interval: Interval | None
    compile_geomean_interval: Interval | None
    cases: int
    passed: int
    compiled: int
    faster: tuple[str, ...]
    slower: tuple[str, ...]
    regressions: tuple[str, ...]
    disturbed: tuple[str, ...]
    missing: tuple[str, ...]
    wrong: tuple[str, ...]
    incomparable: tuple[str, ...]

    @property
    def pass_rate(self) -> float | None:
        """Fraction of the cases that could be compared."""
        return self.passed / self.cases if self.cases else None

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes disturbed too many cases for a mean."""
        return len(self.disturbed) >= MOST_DISTURBED * max(1, self.cases)


def summarize_comparisons(comparisons: Sequence[Comparison]) -> Summary:
    """Returns the geometric mean over common cases, with counts and the cases left out.

    The geometric mean is the only mean of ratios that does not depend on the choice of the baseline
    (Fleming & Wallace 1986). It hides absolute times, so tables print them as well. Latencies and
    compile times have separate means. Cases that neither side supports are not counted, nor are
    stacks compared with their quantised selves.
    """
    counted = [
        item for item in comparisons if item.fate is not Fate.UNSUPPORTED and not item.arithmetic
    ]
    ratios: defaultdict[str, list[Comparison]] = defaultdict(list)
    named: defaultdict[Any, list[str]] = defaultdict(list)
    for item in counted:
        if item.ratio is not None:
            ratios[item.quantity].append(item)
        named[item.verdict].append(item.name)
        named[item.fate].append(f"{item.name}: {item.reason}")
    latency, compiling = (_geomean(ratios[name]) for name in (LATENCY, COLD_COMPILE))
    return Summary(
        geomean=latency.estimate if latency else None,
        compile_geomean=compiling.estimate if compiling else None,
        geomean_interval=latency,
        compile_geomean_interval=compiling,
        cases=len(counted),
        passed=sum(map(len, ratios.values())),
        compiled=len(ratios[COLD_COMPILE]),
        faster=tuple(named[Verdict.FASTER]),
        slower=tuple(named[Verdict.SLOWER]),
        regressions=tuple(item.name for item in regressions(counted)),
        disturbed=tuple(item.name for item in counted if item.disturbed),
        missing=tuple(named[Fate.MISSING]),
        wrong=tuple(named[Fate.WRONG]),
        incomparable=tuple(named[Fate.INCOMPARABLE]),
    )


def exit_code(summary: Summary) -> int:
    """Returns 2 for a regression or a wrong output, 3 for missing data, else 0.

    Among many equal pairs some are `slower` by chance; a regression must be significant at 5 % over
    all comparisons together. Incomparable data counts as missing, and so does an empty comparison.
    """
    if summary.regressions or summary.wrong:
        return 2
    if summary.missing or summary.incomparable or not summary.passed:
        return 3
    return 0


def regressions(items: Iterable[Comparison]) -> list[Comparison]:
    """Returns the comparisons that are significantly slower among all, see `decisive`."""
    tested = [(item, item.log_ratio) for item in items if item.log_ratio is not None]
    beyond_chance = decisive([ratio for _, ratio in tested], Verdict.SLOWER)
    return [
        item
        for (item, _), is_decisive in zip(tested, beyond_chance, strict=True)
        if is_decisive and item.verdict is Verdict.SLOWER
    ]


def _geomean(items: Sequence[Comparison]) -> Interval | None:
    groups: defaultdict[Hashable, list[LogRatio]] = defaultdict(list)
    for item in items:
        if item.log_ratio is not None:
            groups[item.base].append(item.log_ratio)
    return mean_ratio(groups.values()) if groups else None


# Trials with a larger share of contended blocks do not support a verdict.
_MOST_CONTENDED = 0.5


def interval_of(case: Case) -> Interval | None:
    """Returns the measured quantity of a correct case in ms; None without valid samples."""
    with contextlib.suppress(SampleError):
        return latency_interval(samples_of(case.metrics)) if case.status is Status.OK else None
    return None


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
    """Returns a comparison without a ratio; identity fields are `?` without a case."""
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
    if close and ratio.processes > 1 and not ratio.own and resembles(ratio.shared):
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
    """Returns a difference that makes a ratio meaningless, or an empty string."""
    if old.data_type != new.data_type and not _in_fewer_bits(old, new):
        return f"different data types: {old.data_type} and {new.data_type}"
    if old.workload != new.workload and not has_changed:
        remedy = "; if the model changed on purpose, pass --changed-models"
        remedy *= old.label == new.label
        return f"different workloads: {old.label} and {new.label} (digests differ){remedy}"
    if old.quantity != new.quantity:
        return f"different measurements: {old.quantity} and {new.quantity}"
    if old.machine != new.machine:
        return f"different machines: {old.machine} and {new.machine}"
    # Different stacks spell the name of a device differently.
    devices = [case.metrics.program.device_name for case in (old, new)]
    if old.runner == new.runner and all(devices) and devices[0] != devices[1]:
        return f"different devices: {devices[0]} and {devices[1]}"
    threads = [case.threads for case in (old, new)]
    if threads[0] != threads[1]:
        return f"different thread counts: {threads[0]} and {threads[1]}"
    return ""
