"""Ranks competitors by the geometric mean of speed-ups over their common cases."""

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain

import attrs

from comparative_benchmark.analysis.stats.analysis import (
    NOISE_THRESHOLD,
    VERDICT_LEVEL,
    Interval,
    Verdict,
    mean_ratio,
    verdict,
)
from comparative_benchmark.reporting.report.inputs import ReportCase
from comparative_benchmark.results.case import COLD_COMPILE, LATENCY, Case
from comparative_benchmark.results.comparing.compare import (
    DEFAULT_BASELINE,
    against_baseline,
    map_jobs,
    process_count,
)
from comparative_benchmark.results.comparing.comparison import (
    COMPILE_THRESHOLD,
    MOST_DISTURBED,
    Comparison,
    Fate,
    interval_of,
)
from comparative_benchmark.results.record import Status

# With fewer cases, starting processes takes longer than judging.
_WORTH_PROCESSES = 300


@attrs.frozen(kw_only=True)
class Judged:
    """A case with its statistics.

    Attributes:
      interval: 95 % interval of the latency in ms; for a compile-only result, of the cold compile
        time; None without samples.
      comparison: comparison with the baseline, as candidate / baseline; None for the baseline
        itself.
    """

    case: ReportCase
    interval: Interval | None
    comparison: Comparison | None


def choose_baseline(cases: Iterable[Case]) -> str:
    """Returns the default baseline competitor."""
    counts: Counter[str] = Counter()
    for case in cases:
        # A script is only compared with its own past.
        counts[case.competitor] += case.result.ranked and not case.metrics.throughput
    if DEFAULT_BASELINE in counts:
        return DEFAULT_BASELINE
    return max(sorted(counts), key=lambda name: counts[name])


def judge(
    cases: Sequence[ReportCase],
    baseline: str,
    *,
    threshold: float = NOISE_THRESHOLD,
    processes: int | None = None,
) -> list[Judged]:
    """Returns every case with its interval and comparison with its workload's baseline.

    Like `compare_to_baseline`, but never compares results of two machines.

    Args:
      cases: cases of any workloads, devices and machines.
      baseline: competitor to compare with.
      threshold: smaller differences of latencies are noise.
      processes: number of processes to use; by default one per CPU if there is much work.
    """
    groups: defaultdict[Hashable, list[ReportCase]] = defaultdict(list)
    for case in cases:
        groups[case.workload, case.contest].append(case)
    jobs = [(group, baseline, threshold) for group in groups.values()]
    processes = processes or process_count(len(cases), least=_WORTH_PROCESSES)
    judged = chain.from_iterable(map_jobs(_judge_group, jobs, processes=processes))
    verdicts = {
        id(case): Judged(case=case, interval=interval, comparison=comparison)
        for case, (interval, comparison) in zip(chain(*groups.values()), judged, strict=True)
    }
    return [verdicts[id(case)] for case in cases]


def _judge_group(
    job: tuple[list[ReportCase], str, float],
) -> list[tuple[Interval | None, Comparison | None]]:
    cases, baseline, threshold = job
    comparisons = against_baseline(cases, baseline, threshold=threshold)
    return [
        ((comparison and comparison.candidate_ms) or interval_of(case), comparison)
        for case, comparison in zip(cases, comparisons, strict=True)
    ]


# Competitors with a smaller share of the most complete one's cases would leave too few common
# cases.
_COVERAGE = 0.5


@attrs.frozen(kw_only=True)
class Mean:
    """A geometric mean of speed-ups, baseline / candidate, with its 98 % interval.

    Attributes:
      latency_ms: geometric mean of the candidate's times over the same cases.
      processes: smallest number of processes of a case.
      limits: simultaneous interval for all competitors, if there are more than two.
      doubt: why it determines no winner; empty if it does.
    """

    estimate: float
    low: float
    high: float
    cases: int
    latency_ms: float
    processes: int
    limits: tuple[float, float]
    doubt: str

    @property
    def side(self) -> str:
        """`ahead` or `behind` if it is clearly above or below 1, else `even`."""
        if self.doubt:
            return "even"
        return "ahead" if self.estimate > 1 else "behind"


@attrs.frozen(kw_only=True)
class Standing:
    """One competitor, with models of one framework, compared with the baseline.

    Attributes:
      common: mean over the cases common to all ranked competitors; None if not ranked.
      own: mean over all cases shared with the baseline; None without such cases.
      cases: number of cases that it should have run, without unsupported ones.
      verdicts: number of each verdict.
    """

    competitor: str
    framework: str
    level: str
    is_baseline: bool
    common: Mean | None
    own: Mean | None
    cases: int
    verdicts: Mapping[str, int]

    @property
    def name(self) -> str:
        """Display name."""
        return f"{self.competitor} ({self.framework})"

    @property
    def mean(self) -> Mean | None:
        """Mean over the common cases; over its own if it is not ranked."""
        return self.common or self.own

    @property
    def is_decided(self) -> bool:
        """Whether any single case is clear: a mean of unclear cases is a hint, not a finding."""
        return bool(self.verdicts.get("faster") or self.verdicts.get("slower"))


@attrs.frozen(kw_only=True)
class Contest:
    """Results on one machine, with competitors ranked from the fastest.

    Attributes:
      common_cases: number of workloads common to all ranked competitors, of `cases` in all.
    """

    device: str
    machine: str
    quantity: str
    common_cases: int
    cases: int
    standings: Sequence[Standing]

    @property
    def name(self) -> str:
        """Display name."""
        what = "" if self.quantity == LATENCY else f", {self.quantity}"
        return f"{self.device}, {self.machine}{what}"

    @property
    def ranked(self) -> Sequence[Standing]:
        """Competitors ranked against the baseline, the highest mean first."""
        ranked = [standing for standing in self.standings if standing.mean]
        return [standing for standing in ranked if standing.common] or ranked

    @property
    def winner(self) -> Standing | None:
        """The highest mean that is clearly ahead; the baseline if all are clearly behind it."""
        ahead = [s for s in self.ranked if s.mean and s.mean.side == "ahead"]
        if ahead:
            return ahead[0]
        if not all(s.mean and s.mean.side == "behind" for s in self.ranked):
            return None
        return next((s for s in self.standings if s.is_baseline and self.ranked), None)

    @property
    def rivals(self) -> Sequence[Standing]:
        """Competitors whose simultaneous interval (`Mean.limits`) overlaps the winner's.

        Empty if the baseline has won.
        """
        best = self.winner.mean if self.winner else None
        return [
            standing
            for standing in self.ranked
            if best
            and (mean := standing.mean) not in (None, best)
            and mean.limits[1] >= best.limits[0]
        ]


def contests(judged: Sequence[Judged], *, threshold: float = NOISE_THRESHOLD) -> list[Contest]:
    """Returns the standings on each device and machine, the one with most cases first.

    Competitors that support none of the cases are omitted; a table of cases gives the reasons.
    Scripts that report rates are omitted, too, because they have no competitors.
    """
    judged = [item for item in judged if not item.case.metrics.throughput]
    groups: defaultdict[tuple[str, str, str], list[Judged]] = defaultdict(list)
    able = {(item.case.contest, item.case.runner) for item in judged if not _is_unsupported(item)}
    for item in judged:
        if (item.case.contest, item.case.runner) in able:
            groups[item.case.contest].append(item)
    contests = [_contest(key, group, threshold) for key, group in groups.items()]
    return sorted(contests, key=lambda contest: -contest.cases)


def geomean(
    comparisons: Sequence[Comparison],
    *,
    competitors: int = 2,
    threshold: float = NOISE_THRESHOLD,
) -> Mean | None:
    """Returns the geometric mean of inverted ratios, see `mean_ratio`; None for no comparisons.

    The baselines of different cases are separate processes, so their errors are independent. A mean
    determines no winner if it is not significant among all pairs of competitors (Bonferroni), or if
    a tenth of its cases were disturbed.

    Args:
      comparisons: comparisons of the cases, each with a ratio.
      competitors: number of competitors compared with each other, including the baseline.
      threshold: smaller differences are not relevant.
    """
    known = [
        (item.log_ratio, item.candidate_ms.estimate)
        for item in comparisons
        if item.log_ratio and item.candidate_ms
    ]
    if not known:
        return None
    groups = [[ratio] for ratio, _ in known]
    mean = mean_ratio(groups)
    among_all = mean_ratio(groups, 1 - (1 - VERDICT_LEVEL) / math.comb(max(competitors, 2), 2))
    # Speed-ups are inverse: their lower limit comes from the upper limit of the ratios.
    return Mean(
        estimate=1 / mean.estimate,
        low=1 / mean.high,
        high=1 / mean.low,
        cases=len(known),
        latency_ms=math.exp(math.fsum(math.log(latency) for _, latency in known) / len(known)),
        processes=mean.processes,
        limits=(1 / among_all.high, 1 / among_all.low),
        doubt=_doubt(comparisons, mean, among_all, threshold),
    )


def _doubt(
    comparisons: Sequence[Comparison], mean: Interval, among_all: Interval, threshold: float
) -> str:
    """Returns why a mean determines no winner; empty if it does."""
    disturbed = sum(item.disturbed for item in comparisons)
    if disturbed >= MOST_DISTURBED * len(comparisons):
        return f"disturbances in {disturbed} of {len(comparisons)} cases"
    if mean.low <= 1 <= mean.high:
        return "its interval contains 1"
    if len(comparisons) == 1:
        # One family of tests for the table of a case and for its winner.
        [item] = comparisons
        return "" if item.is_decided else item.reason
    is_compile = comparisons[0].quantity == COLD_COMPILE
    limit = max(threshold, COMPILE_THRESHOLD) if is_compile else threshold
    outcome, reason = verdict(mean, threshold=limit)
    if outcome not in (Verdict.FASTER, Verdict.SLOWER):
        return reason
    certain = not among_all.low <= 1 <= among_all.high
    return "" if certain else "the difference is not significant among all pairs of competitors"


def _contest(key: tuple[str, str, str], group: Sequence[Judged], threshold: float) -> Contest:
    device, machine, quantity = key
    runners: defaultdict[tuple[str, str, str], list[Judged]] = defaultdict(list)
    for item in group:
        runners[item.case.runner].append(item)
    compared = {
        runner: {
            item.case.workload: item.comparison
            for item in items
            if item.comparison is not None
            and item.comparison.ratio is not None
            and not item.comparison.arithmetic
        }
        for runner, items in runners.items()
    }
    most = max(map(len, compared.values()), default=0)
    ranked = [
        runner for runner, cases in compared.items() if cases and len(cases) >= _COVERAGE * most
    ]
    shared = set.intersection(*(set(compared[runner]) for runner in ranked)) if ranked else set()
    competitors = sum(1 for cases in compared.values() if cases) + 1
    mean = functools.partial(geomean, competitors=competitors, threshold=threshold)
    standings = [
        _standing(items, compared[runner], shared if runner in ranked else set(), mean)
        for runner, items in runners.items()
    ]
    return Contest(
        device=device,
        machine=machine,
        quantity=quantity,
        common_cases=len(shared),
        cases=len({item.case.workload for item in group}),
        standings=sorted(standings, key=lambda standing: _rank(standing, by_own=not shared)),
    )


def _standing(
    items: Sequence[Judged],
    compared: Mapping[str, Comparison],
    shared: set[str],
    mean: Callable[[Sequence[Comparison]], Mean | None],
) -> Standing:
    case = items[0].case
    return Standing(
        competitor=case.competitor,
        framework=case.framework,
        level=case.result.level,
        is_baseline=all(item.comparison is None for item in items),
        common=mean([compared[workload] for workload in sorted(shared)]),
        own=mean(list(compared.values())),
        cases=sum(not _is_unsupported(item) for item in items),
        verdicts=Counter(comparison.verdict.value for comparison in compared.values()),
    )


def _is_unsupported(item: Judged) -> bool:
    fate = item.comparison.fate if item.comparison else None
    return fate is Fate.UNSUPPORTED or item.case.status is Status.UNSUPPORTED


def _rank(standing: Standing, *, by_own: bool) -> tuple[bool, float, str]:
    """Returns the sort key: the fastest first, unranked competitors last."""
    # The baseline is sorted by its speed-up of 1.
    if standing.is_baseline:
        return (False, -1.0, standing.name)
    mean = standing.own if by_own else standing.common
    if mean is not None:
        return (False, -mean.estimate, standing.name)
    return (True, -(standing.own.estimate if standing.own else 0.0), standing.name)
