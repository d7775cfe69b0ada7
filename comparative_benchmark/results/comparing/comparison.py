"""Comparison records: one case, and the summary of all cases with the exit code."""

import enum
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import attrs

from comparative_benchmark.analysis.stats.analysis import (
    Interval,
    LogRatio,
    Verdict,
    decisive,
    mean_ratio,
)
from comparative_benchmark.results.case import COLD_COMPILE, LATENCY


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
        among all pairs of a workload's competitors, or because other processes disturbed the race;
        else None.
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
    tested = [item for item in items if item.log_ratio is not None]
    ratios = [item.log_ratio for item in tested if item.log_ratio is not None]
    beyond_chance = decisive(ratios, Verdict.SLOWER)
    return [
        item
        for item, is_decisive in zip(tested, beyond_chance, strict=True)
        if is_decisive and item.verdict is Verdict.SLOWER
    ]


def _geomean(items: Sequence[Comparison]) -> Interval | None:
    groups: defaultdict[Hashable, list[LogRatio]] = defaultdict(list)
    for item in items:
        if item.log_ratio is not None:
            groups[item.base].append(item.log_ratio)
    return mean_ratio(groups.values()) if groups else None
