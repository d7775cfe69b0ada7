"""Bisection by a userbenchmark: the search of `cbs bisect`, with its metrics as the oracle.

Each candidate's environment runs the userbenchmark several times, in turns with the good one's.
A metric of three runs a side has an interval, and that decides; a status that took the place of a
number is bad at once.
"""

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.bisection.environments import EnvironmentPool, Recipe
from comparative_benchmark.bisection.oracle import (
    Candidate,
    CaseAnswer,
    Finding,
    Focus,
    Ratio,
    UnjudgeableError,
)
from comparative_benchmark.bisection.search import Answer
from comparative_benchmark.runs.environments import Environment
from comparative_benchmark.stats.analysis import SampleError, Verdict, unpaired_ratio, verdict
from comparative_benchmark.userbenchmarks.discovery import Userbenchmark, UserbenchmarkError
from comparative_benchmark.userbenchmarks.metrics import MetricsError, read_metrics
from comparative_benchmark.userbenchmarks.processes import run_benchmark
from comparative_benchmark.userbenchmarks.signals import more_is_better

Value = float | str


@attrs.frozen(kw_only=True)
class UserbenchmarkOracle:
    """Judges candidates by a userbenchmark; see `bisection.oracle.Oracle`.

    Attributes:
      benchmark: which.
      arguments: of its `run`.
      pattern: of the metrics to look at.
      pool, recipe: where environments come from, and what they are made of.
      folder: where metrics and logs go.
      runs: of each side; twice as many at each further attempt.
      threshold: relative change below which a candidate is good, until the ends tell one.
      timeout_s: of one run.
    """

    benchmark: Userbenchmark
    arguments: Sequence[str]
    pattern: re.Pattern[str]
    pool: EnvironmentPool
    recipe: Callable[[Candidate], Recipe]
    folder: Path
    runs: int = 3
    threshold: float = 0.03
    timeout_s: float | None = None

    def compare(
        self, good: Candidate, candidate: Candidate, focus: Focus, *, attempt: int
    ) -> Finding:
        """Returns what each metric of the candidate is against that of the good one.

        Raises:
          UnjudgeableError: one of the two does not run.
        """
        environments = [
            self.pool.get(self.recipe(side), beside=(other.environment_name,))
            for side, other in ((good, candidate), (candidate, good))
        ]
        folder = self.folder / f"{good.environment_name}-{candidate.environment_name}-{attempt}"
        sides: tuple[list[Mapping[str, Value]], ...] = ([], [])
        for turn in range(self.runs * 2**attempt):
            # In turns, and each first as often as the other: what drifts, drifts for both.
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                sides[side].append(self._run(environments[side], folder, turn))
        names = [
            name
            for name in sides[0][0]
            if self.pattern.search(name) and (focus.cases is None or name in focus.cases)
        ]
        limit = self.threshold if focus.threshold is None else focus.threshold
        return Finding(
            cases=tuple(_judge(name, sides[0], sides[1], limit) for name in names),
            results=str(folder),
        )

    def _run(self, environment: Environment, folder: Path, turn: int) -> Mapping[str, Value]:
        output = folder / f"{environment.name}-{turn}"
        output.mkdir(parents=True, exist_ok=True)
        try:
            with (output / "log.txt").open("w", encoding="utf-8") as log:
                left = run_benchmark(
                    self.benchmark,
                    self.arguments,
                    output,
                    python=environment.python,
                    variables=environment.variables,
                    timeout_s=self.timeout_s,
                    log=log,
                )
            metrics: Mapping[str, Value] = read_metrics(left.files[-1])["metrics"]
        except (UserbenchmarkError, MetricsError) as error:
            raise UnjudgeableError(f"{environment.name}: {error} (see {output}/log.txt)") from error
        return metrics


def _judge(
    name: str,
    good: Sequence[Mapping[str, Value]],
    candidate: Sequence[Mapping[str, Value]],
    threshold: float,
) -> CaseAnswer:
    old, new = ([metrics.get(name, "missing") for metrics in side] for side in (good, candidate))
    if texts := [value for value in old if isinstance(value, str)]:
        return CaseAnswer(case=name, answer=Answer.SKIPPED, reason=f"the good one: {texts[0]}")
    if texts := [value for value in new if isinstance(value, str)]:
        return CaseAnswer(case=name, answer=Answer.BAD, reason=texts[0])
    sides = [[[float(value)] for value in values] for values in (new, old)]
    if more_is_better(name):
        sides.reverse()
    try:
        interval = unpaired_ratio(sides[0], sides[1]).interval()
    except SampleError as error:
        return _without_spread(name, old, new, str(error))
    outcome, reason = verdict(interval, threshold=threshold)
    answers = {
        Verdict.SLOWER: Answer.BAD,
        Verdict.FASTER: Answer.GOOD,
        Verdict.SAME: Answer.GOOD,
        Verdict.UNCLEAR: Answer.UNCLEAR,
        Verdict.INCOMPARABLE: Answer.SKIPPED,
    }
    answer = answers[outcome]
    if answer is Answer.UNCLEAR and interval.high < 1 + threshold:
        answer, reason = Answer.GOOD, f"the whole interval is below {1 + threshold:.3g}"
    ratio = Ratio(estimate=interval.estimate, low=interval.low, high=interval.high)
    return CaseAnswer(case=name, answer=answer, reason=reason, ratio=ratio)


def _without_spread(
    name: str, old: Sequence[Value], new: Sequence[Value], reason: str
) -> CaseAnswer:
    """Returns the answer of values that are no positive times, such as counts down to 0."""
    before, after = (statistics.median(map(float, side)) for side in (old, new))
    is_worse = (after < before) if more_is_better(name) else (after > before)
    return CaseAnswer(
        case=name,
        answer=Answer.BAD if is_worse else Answer.GOOD,
        reason=f"{before:g} -> {after:g} ({reason})",
    )
