"""The oracle that races a candidate's environment against the good one.

It uses the race of `cbs run --env`: fresh processes of both sides alternate, all others are
stopped, and outputs are verified. Each comparison leaves a results file for `cbs show` and
`cbs compare`.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.analysis.stats.planning import (
    CompileOnly,
    FixedCounts,
    SamplingRule,
)
from comparative_benchmark.api.case_selection import Selection
from comparative_benchmark.engine import runner
from comparative_benchmark.engine.settings import Environment, RunSettings
from comparative_benchmark.engine.trial import Competitor, in_environments
from comparative_benchmark.results.record import Result
from comparative_benchmark.results.results_file import ResultsFile
from comparative_benchmark.studies.bisection import judging
from comparative_benchmark.studies.bisection.environments import EnvironmentPool, Recipe
from comparative_benchmark.studies.bisection.judging import Metric
from comparative_benchmark.studies.bisection.search import (
    Candidate,
    CaseAnswer,
    Finding,
    Focus,
    UnjudgeableError,
)
from openxla.benchmark.def_types import BenchmarkCase

# If only the output or the status matters, few samples suffice.
_FEW = FixedCounts(warmup_iterations=1, iterations=3)
# Detecting a smaller effect needs more processes than a race has.
_LEAST_EFFECT = 0.01


@attrs.frozen(kw_only=True)
class RaceOracle:
    """Judges candidates by racing them; see `oracle.Oracle`.

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
            {judging.name_of(r): r for r in results if _environment_of(r) == environment.name}
            for environment in environments
        ]
        return [
            judging.judge(sides[0][name], result, self.metric, focus.threshold)
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
