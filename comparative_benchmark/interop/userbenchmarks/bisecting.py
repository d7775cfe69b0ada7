"""`cbs userbenchmark bisect`: the search of `cbs bisect`, with metrics as the oracle.

The userbenchmark runs several times in the candidate's environment, alternating with the good one.
Three runs per side give each metric a confidence interval, which decides. A candidate is bad if it
reports a status instead of a number.
"""

import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import requires
from pathlib import Path

import attrs
from packaging.requirements import Requirement

from comparative_benchmark.analysis.stats.analysis import SampleError, unpaired_ratio, verdict
from comparative_benchmark.engine.settings import Environment
from comparative_benchmark.errors import UsageError
from comparative_benchmark.interop.userbenchmarks import child
from comparative_benchmark.interop.userbenchmarks.changes import more_is_better
from comparative_benchmark.interop.userbenchmarks.runner import (
    MetricsError,
    Userbenchmark,
    UserbenchmarkError,
    read_metrics,
    run_benchmark,
)
from comparative_benchmark.studies.bisection.bisection import Outcome
from comparative_benchmark.studies.bisection.environments import EnvironmentPool, Recipe, Recipes
from comparative_benchmark.studies.bisection.racing import by_ratio
from comparative_benchmark.studies.bisection.request import BisectRequest, Subject, bisect
from comparative_benchmark.studies.bisection.search import (
    Answer,
    Candidate,
    CaseAnswer,
    Finding,
    Focus,
    UnjudgeableError,
)

Value = float | str
_DISTRIBUTION = "common-benchmark-suite"
# Smaller relative changes of a metric are ignored.
_NOISE = 0.03


def bisect_userbenchmark(
    benchmark: Userbenchmark,
    request: BisectRequest,
    *,
    arguments: Sequence[str],
    runs: int,
    timeout_s: float | None,
    requirements: Path | None,
) -> Outcome:
    """Bisects by the metrics of a userbenchmark whose names match `request.metric`.

    Args:
      benchmark: the userbenchmark.
      request: what to bisect.
      arguments: arguments of the userbenchmark's `run` function.
      runs: number of runs per side, at least 3.
      timeout_s: time limit of each run; None for no limit.
      requirements: file with requirements of the environments, in addition to the suite's own.

    Raises:
      UsageError: an argument is invalid, or one of the two ends cannot be judged.
    """
    if runs < 3:
        raise UsageError("--runs must be at least 3: fewer runs give no confidence interval")
    try:
        pattern = re.compile(request.metric)
    except re.error as error:
        raise UsageError(
            f"--metric {request.metric!r} is not a regular expression: {error}"
        ) from error

    def oracle(pool: EnvironmentPool, recipes: Recipes, folder: Path) -> UserbenchmarkOracle:
        return UserbenchmarkOracle(
            benchmark=benchmark,
            arguments=tuple(arguments),
            pattern=pattern,
            pool=pool,
            recipe=recipes,
            folder=folder / "runs",
            runs=runs,
            threshold=request.threshold or _NOISE,
            timeout_s=timeout_s,
        )

    subject = Subject(
        lock=_requirements(requirements),
        question={
            "userbenchmark": str(benchmark.folder),
            "arguments": list(arguments),
            "runs": runs,
        },
        noise=_NOISE,
        oracle=oracle,
        name=benchmark.name,
    )
    return bisect(request, subject, say=_say)


def _requirements(given: Path | None) -> str:
    """Returns the given requirements and the suite's.

    Raises:
      UsageError: the file cannot be read.
    """
    own = [Requirement(line) for line in requires(_DISTRIBUTION) or []]
    own = [item for item in own if item.marker is None or item.marker.evaluate({"extra": ""})]
    lines = [str(item) for item in own]
    if given is not None:
        try:
            lines.append(given.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--requirements {given} cannot be read: {error}") from error
    return "\n".join(lines)


@attrs.frozen(kw_only=True)
class UserbenchmarkOracle:
    """Judges candidates by a userbenchmark; see `bisection.search.Oracle`.

    Attributes:
      benchmark: the userbenchmark.
      arguments: arguments of its `run` function.
      pattern: selects the metrics to compare.
      pool, recipe: provide environments, and their contents.
      folder: metrics and logs are written here.
      runs: runs per side; doubled at each further attempt.
      threshold: smaller relative changes are good, unless the search's focus sets a threshold.
      timeout_s: limit for one run.
    """

    benchmark: Userbenchmark
    arguments: Sequence[str]
    pattern: re.Pattern[str]
    pool: EnvironmentPool
    recipe: Callable[[Candidate], Recipe]
    folder: Path
    runs: int = 3
    threshold: float = _NOISE
    timeout_s: float | None = None

    def compare(
        self, good: Candidate, candidate: Candidate, focus: Focus, *, attempt: int
    ) -> Finding:
        """Compares each metric of the candidate with the good one.

        Raises:
          UnjudgeableError: one of the two fails to run.
        """
        environments = [
            self.pool.get(self.recipe(side), beside=(other.environment_name,))
            for side, other in ((good, candidate), (candidate, good))
        ]
        folder = self.folder / f"{good.environment_name}-{candidate.environment_name}-{attempt}"
        sides: tuple[list[Mapping[str, Value]], ...] = ([], [])
        for turn in range(self.runs * 2**attempt):
            # Alternate the sides, and which one goes first, so that drift affects both equally.
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
                    variables={**environment.variables, child.LAST_VARIABLE: "1"},
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
        return CaseAnswer(case=name, answer=Answer.SKIPPED, reason=f"good end: {texts[0]}")
    if texts := [value for value in new if isinstance(value, str)]:
        return CaseAnswer(case=name, answer=Answer.BAD, reason=texts[0])
    sides = [[[float(value)] for value in values] for values in (new, old)]
    if more_is_better(name):
        sides.reverse()
    try:
        interval = unpaired_ratio(sides[0], sides[1]).interval()
    except SampleError as error:
        return _without_spread(name, old, new, str(error))
    return by_ratio(name, interval, *verdict(interval, threshold=threshold), threshold)


def _without_spread(
    name: str, old: Sequence[Value], new: Sequence[Value], reason: str
) -> CaseAnswer:
    """Judges values that have no ratio, such as counts that reach 0: bad ones do not overlap."""
    before, after = (statistics.median(map(float, side)) for side in (old, new))
    sides = (new, old) if more_is_better(name) else (old, new)
    low, high = ([float(value) for value in side] for side in sides)
    is_worse = statistics.median(high) > statistics.median(low)
    is_bad = min(high) > max(low)
    return CaseAnswer(
        case=name,
        answer=Answer.BAD if is_bad else Answer.UNCLEAR if is_worse else Answer.GOOD,
        reason=f"{before:g} -> {after:g} ({reason})",
    )


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
