"""What a comparison comes to: one case, and the summary of all, with the exit code."""

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
    """One case against its baseline.

    Attributes:
      workload: digest; `label` for people.
      competitor: `backend:compiler`, with `@name` of its environment; `framework` and `device` it
        ran with.
      quantity: what was measured: `latency`, or `cold compile` of compile-only results.
      baseline_ms, candidate_ms: that quantity with 95 % intervals; None where there are none.
      ratio: candidate / baseline with the 98 % interval that the verdict rests on.
      paired: whether the ratio is from interleaved rounds of one race.
      log_ratio: the same with what each process adds to its error; `base` tells ratios apart that
        have other baseline processes.
      p_value: of the test behind the verdict; None for fewer processes than one takes.
      compile_ratio, memory_ratio: candidate / baseline; None where one side has no figure.
      arithmetic: of a stack against itself in fewer bits, e.g. `int8wo against fp32`: the ratio is
        what the recipe gives, and has no part in any mean or ranking of equals; else empty.
      withheld: the verdict that the ratio alone would have, where the verdict is `unclear` since
        the machine may have made the difference (see `compare_documents`), it may be chance among
        all pairs of a workload's competitors, or others disturbed the race; else None.
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
        """The verdict as tables show it, e.g. `faster` or `unclear (disturbed)`."""
        return f"{self.verdict.value} (disturbed)" if self.disturbed else self.verdict.value

    def withhold(self, reason: str) -> "Comparison":
        """Returns the comparison as `unclear` for a reason; its verdict becomes `withheld`."""
        return attrs.evolve(self, verdict=Verdict.UNCLEAR, reason=reason, withheld=self.verdict)

    @property
    def is_decided(self) -> bool:
        """Whether the verdict is `faster` or `slower`."""
        return self.verdict in (Verdict.FASTER, Verdict.SLOWER)

    @property
    def name(self) -> str:
        """What a person calls the case."""
        return f"{self.label} {self.competitor} ({self.framework}, {self.device})"


@attrs.frozen(kw_only=True)
class Summary:
    """What all comparisons come to.

    Attributes:
      geomean: of the latency ratios of all compared cases, unclipped; None if there are none.
      compile_geomean: the same of cold compile times; `compiled` of the passed cases are in it.
      geomean_interval, compile_geomean_interval: their 98 % intervals.
      cases: how many there should be; `passed` of them could be compared.
      faster, slower: names of those with that verdict.
      regressions: names of those that are slower beyond chance among all that were compared.
      disturbed: names of those without a verdict because other processes disturbed the race.
      missing, wrong, incomparable: names of those without a ratio, each with its reason.
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
        """Share of the cases that could be compared."""
        return self.passed / self.cases if self.cases else None


def summarize_comparisons(comparisons: Sequence[Comparison]) -> Summary:
    """Returns the geometric mean over the common set, never without counts and what is left out.

    Ratios have no other mean that does not depend on the choice of the baseline (Fleming &
    Wallace 1986); it hides the absolute times, which is why tables print them beside it. Latencies
    and compile times have a mean each. A case that neither side supports is not counted, and
    neither is a stack against itself in fewer bits.
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
    """Returns 2 for a regression or a wrong output, 3 for missing data, 0 if all is fine.

    Of many equal pairs some are `slower` by chance; a regression is one that is not, at 5 % for all
    comparisons together. Data that cannot be compared is missing, and so is an empty comparison:
    never green.
    """
    if summary.regressions or summary.wrong:
        return 2
    if summary.missing or summary.incomparable or not summary.passed:
        return 3
    return 0


def regressions(items: Iterable[Comparison]) -> list[Comparison]:
    """Returns those that are slower beyond chance among all of them, see `decisive`."""
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
