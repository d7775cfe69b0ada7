"""The oracle: races a candidate's environment against the good one, and judges the results.

It uses the race of `cbs run --env`: fresh processes of both sides alternate, all others are
stopped, and outputs are verified. Each comparison leaves a results file for `cbs show` and
`cbs compare`.

Slower has the same meaning as in `cbs compare`. The total change is known from the two ends; half
of it, on a log scale, is the threshold. A candidate is bad if its ratio exceeds the threshold and
the whole confidence interval is above 1, and good if the interval ends below the threshold.
"""

import enum
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.analysis.stats.analysis import (
    MIN_PROCESSES,
    NOISE_THRESHOLD,
    Interval,
    SampleError,
    Verdict,
    unpaired_ratio,
    verdict,
)
from comparative_benchmark.analysis.stats.planning import CompileOnly, FixedCounts, SamplingRule
from comparative_benchmark.api.case_selection import Selection
from comparative_benchmark.engine import runner
from comparative_benchmark.engine.settings import Environment, RunSettings
from comparative_benchmark.engine.trial import Competitor, in_environments
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.compare import compare_to_baseline
from comparative_benchmark.results.comparing.comparison import COMPILE_THRESHOLD, quotient
from comparative_benchmark.results.record import Result, Status
from comparative_benchmark.results.results_file import ResultsFile
from comparative_benchmark.studies.bisection.environments import EnvironmentPool, Recipe
from comparative_benchmark.studies.bisection.search import (
    Answer,
    Candidate,
    CaseAnswer,
    Finding,
    Focus,
    Ratio,
    UnjudgeableError,
)
from openxla.benchmark.def_types import BenchmarkCase

# Peak resident memory varies this much with pages, arenas and threads.
_MEMORY_THRESHOLD = 0.02
_RUNS = (Status.OK, Status.UNSTEADY)
# If only the output or the status matters, few samples suffice.
_FEW = FixedCounts(warmup_iterations=1, iterations=3)
# Detecting a smaller effect needs more processes than a race has.
_LEAST_EFFECT = 0.01


class Metric(enum.Enum):
    """The property to bisect for."""

    LATENCY = "latency"
    COMPILE = "compile"
    MEMORY = "memory"
    OUTPUT = "output"
    FAILURE = "failure"

    @property
    def measured(self) -> bool:
        """Whether it is a ratio and not a status."""
        return self not in (Metric.OUTPUT, Metric.FAILURE)

    @property
    def noise(self) -> float:
        """Smaller relative changes are ignored."""
        if self is Metric.COMPILE:
            return COMPILE_THRESHOLD
        return _MEMORY_THRESHOLD if self is Metric.MEMORY else NOISE_THRESHOLD

    @property
    def word(self) -> str:
        """The word for a bad candidate, e.g. `slower`."""
        return _WORDS[self]


_WORDS = {
    Metric.LATENCY: "slower",
    Metric.COMPILE: "slower to compile",
    Metric.MEMORY: "heavier on memory",
    Metric.OUTPUT: "wrong",
    Metric.FAILURE: "broken",
}


def judge(
    good: Result, candidate: Result, metric: Metric, threshold: float | None = None
) -> CaseAnswer:
    """Judges a candidate's result against the good one from the same race.

    Args:
      good: result of a trial in the good environment.
      candidate: result for the same case and competitor in the candidate's environment.
      metric: the property to compare.
      threshold: relative change below which a candidate is good; None for the metric's noise.
    """
    name = name_of(candidate)
    if good.status not in _RUNS or (metric.measured and good.status is not Status.OK):
        reason = f"good end: {_ending(good)}"
        return CaseAnswer(case=name, answer=Answer.SKIPPED, reason=reason)
    if not metric.measured:
        return _by_status(name, candidate, metric)
    if candidate.status is not Status.OK:
        hint = "to bisect this, use --metric output or failure"
        reason = f"nothing was measured: {_ending(candidate)} ({hint})"
        return CaseAnswer(case=name, answer=Answer.SKIPPED, reason=reason)
    limit = metric.noise if threshold is None else threshold
    if metric is Metric.MEMORY:
        return _by_memory(name, good, candidate, limit)
    cases = [Case(result=result) for result in (good, candidate)]
    [item] = compare_to_baseline(cases, good.definition.competitor, threshold=limit)
    answer = by_ratio(name, item.ratio, item.verdict, item.reason, limit)
    if item.disturbed or item.withheld is not None:
        return attrs.evolve(answer, answer=Answer.UNCLEAR, reason=item.reason)
    return answer


def name_of(result: Result) -> str:
    """Returns the name of the case, backend and compiler, without the environment."""
    definition = result.definition
    return f"{definition.benchmark_name} {definition.backend}:{definition.compiler}"


def sought_threshold(bad: Iterable[CaseAnswer], noise: float) -> float | None:
    """Returns half of the smallest change at the bad end, on a log scale; None for a status."""
    ratios = [item.ratio.estimate for item in bad if item.ratio]
    return max(noise, math.sqrt(min(ratios)) - 1) if ratios else None


def _by_status(name: str, candidate: Result, metric: Metric) -> CaseAnswer:
    status = candidate.status
    if metric is Metric.OUTPUT:
        bad = status is Status.WRONG_OUTPUT
    else:
        bad = status is not Status.UNSUPPORTED
    worse = Answer.BAD if bad else Answer.SKIPPED
    answer = Answer.GOOD if status in _RUNS else worse
    return CaseAnswer(case=name, answer=answer, reason=_ending(candidate))


def _by_memory(name: str, good: Result, candidate: Result, threshold: float) -> CaseAnswer:
    after, before = candidate.measured, good.measured
    # A device reports a single, deterministic peak.
    on_device = quotient(after.device_memory_peak_mb, before.device_memory_peak_mb)
    if on_device is not None:
        ratio = Ratio(estimate=on_device, low=on_device, high=on_device)
        answer = Answer.BAD if on_device > 1 + threshold else Answer.GOOD
        return CaseAnswer(case=name, answer=answer, reason="peak device memory", ratio=ratio)
    peaks = [
        [[process.host_memory_peak_mb] for process in metrics.processes or ()]
        for metrics in (after, before)
    ]
    try:
        interval = unpaired_ratio(_numbers(peaks[0]), _numbers(peaks[1])).interval()
    except SampleError as error:
        return CaseAnswer(case=name, answer=Answer.SKIPPED, reason=f"peak memory: {error}")
    outcome, reason = verdict(interval, threshold=threshold)
    return by_ratio(name, interval, outcome, f"peak host memory: {reason}", threshold)


def _numbers(peaks: Sequence[Sequence[float | None]]) -> list[list[float]]:
    """Returns the peaks; raises `SampleError` if a process did not report any."""
    known = [[peak for peak in process if peak is not None] for process in peaks]
    if not all(known):
        raise SampleError("not reported by every process")
    return known


def by_ratio(
    name: str, interval: Interval | None, outcome: Verdict, reason: str, threshold: float
) -> CaseAnswer:
    """Converts an interval and a verdict to an answer, for a quantity that may have increased."""
    ratio = None
    if interval is not None:
        ratio = Ratio(estimate=interval.estimate, low=interval.low, high=interval.high)
    answer = {
        Verdict.SLOWER: Answer.BAD,
        Verdict.SAME: Answer.GOOD,
        Verdict.FASTER: Answer.GOOD,
        Verdict.UNCLEAR: Answer.UNCLEAR,
        Verdict.INCOMPARABLE: Answer.SKIPPED,
    }[outcome]
    if answer is Answer.UNCLEAR and interval is not None and _rules_out(interval, threshold):
        answer = Answer.GOOD
        reason = f"the whole interval is below the {threshold:.1%} threshold"
    return CaseAnswer(case=name, answer=answer, reason=reason, ratio=ratio)


def _rules_out(interval: Interval, threshold: float) -> bool:
    """Returns whether the interval excludes a change as large as the threshold."""
    return interval.processes >= MIN_PROCESSES and interval.high < 1 + threshold


def _ending(result: Result) -> str:
    return Case(result=result).why


@attrs.frozen(kw_only=True)
class RaceOracle:
    """Judges candidates by racing them; see `search.Oracle`.

    Attributes:
      selection: the cases to run.
      competitors: backend and compilers, each raced separately.
      metric: the property that may have become worse.
      settings: settings of the races, with the sampling rule of the first attempt.
      pool: provides environments.
      recipe: returns the contents of a candidate's environment.
      folder: receives results files and logs.
      observer: receives progress.
      bisected: canonical names of the packages that are expected to differ.
    """

    selection: Selection
    competitors: Sequence[Competitor]
    metric: Metric
    settings: RunSettings
    pool: EnvironmentPool
    recipe: Callable[[Candidate], Recipe]
    folder: Path
    observer: runner.Observer
    bisected: frozenset[str] = frozenset()

    def compare(
        self, good: Candidate, candidate: Candidate, focus: Focus, *, attempt: int
    ) -> Finding:
        """Races the candidate against the good one, and judges each case."""
        name = f"{good.environment_name}-{candidate.environment_name}"
        old = self._environment(good, beside=(candidate.environment_name,))
        new = self._environment(candidate, beside=(good.environment_name,))
        environments = [old, new]
        results = ResultsFile(_unused(self.folder, f"{name}-{attempt}"))
        settings = attrs.evolve(
            self.settings,
            sampling=self._sampling(focus, attempt),
            log_dir=results.path.with_suffix(".logs"),
        )
        answers: list[CaseAnswer] = []
        for competitor in self.competitors:
            cases = [case for case in self.selection.cases if _wanted(case, competitor, focus)]
            sides = in_environments([competitor], environments)
            planned = runner.plan(cases, sides, settings.device).trials
            trials = self.selection.admitted(planned, settings)
            if not trials:
                continue
            measured = runner.execute(
                trials,
                attrs.evolve(settings, baseline=str(sides[0])),
                results,
                self.observer,
                command=sys.argv,
            )
            answers += self._judged(measured, environments, focus)
        return Finding(
            cases=tuple(answers),
            results=str(results.path),
            packages=tuple(other_packages(old, new, self.bisected)),
        )

    def _environment(self, candidate: Candidate, *, beside: Sequence[str]) -> Environment:
        try:
            return self.pool.get(self.recipe(candidate), beside=beside)
        except UnjudgeableError as error:
            raise UnjudgeableError(f"{candidate.short}: {error}") from error

    def _judged(
        self, results: Sequence[Result], environments: Sequence[Environment], focus: Focus
    ) -> list[CaseAnswer]:
        sides = [
            {name_of(r): r for r in results if _environment_of(r) == environment.name}
            for environment in environments
        ]
        return [
            judge(sides[0][name], result, self.metric, focus.threshold)
            for name, result in sides[1].items()
        ]

    def _sampling(self, focus: Focus, attempt: int) -> CompileOnly | FixedCounts | SamplingRule:
        """Returns the sampling rule; each attempt uses twice the processes of the previous one."""
        rule, more = self.settings.sampling, 2**attempt
        if not self.metric.measured:
            return _FEW
        if self.metric is Metric.COMPILE:
            # Alternating compilations minimizes the effect of drift.
            pairs = rule.min_processes if isinstance(rule, SamplingRule) else 3
            return CompileOnly(pairs=pairs * more, seed=attempt)
        if not isinstance(rule, SamplingRule):
            return rule
        effect = rule.effect
        if focus.threshold is not None:
            # The threshold is midway between good and bad, so both differ from it by this effect.
            effect = max(_LEAST_EFFECT, focus.threshold)
        return attrs.evolve(
            rule,
            effect=effect,
            min_processes=rule.min_processes * more,
            max_processes=rule.max_processes * more,
            trial_budget_s=rule.trial_budget_s * more,
            seed=(rule.seed or 0) + attempt,
        )


def other_packages(
    good: Environment, candidate: Environment, bisected: frozenset[str]
) -> list[str]:
    """Returns unexpected differences between the packages of two environments, one per line.

    Such a difference may be the cause of a finding.
    """
    before, after = (
        {package["name"].lower().replace("_", "-"): package["version"] for package in side.packages}
        for side in (good, candidate)
    )
    packages = [
        f"{name} {before.get(name, 'absent')} -> {after.get(name, 'absent')}"
        for name in sorted(before.keys() | after.keys())
        if name not in bisected and before.get(name) != after.get(name)
    ]
    if good.python_version != candidate.python_version:
        packages.append(f"python {good.python_version} -> {candidate.python_version}")
    return packages


def _wanted(case: BenchmarkCase, competitor: Competitor, focus: Focus) -> bool:
    name = f"{case.name} {competitor.backend.name}:{competitor.compiler_label}"
    return focus.cases is None or name in focus.cases


def _environment_of(result: Result) -> str:
    environment = result.definition.environment
    return environment.name if environment else ""


def _unused(folder: Path, stem: str) -> Path:
    """Returns the path of a new results file; an interrupted race is repeated as a whole."""
    path, number = folder / f"{stem}.json", 1
    while path.exists():
        path, number = folder / f"{stem}.{number}.json", number + 1
    return path
