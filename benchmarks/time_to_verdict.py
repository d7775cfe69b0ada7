"""Measures the time to verdicts on six competitors, with the current and the previous rule.

Races BERT-base in PyTorch and JAX, about 200 ms per iteration, each competitor against PyTorch's
eager mode. Races by both rules alternate. By the previous rule, each process exported the model and
loaded alone, a warm-up always had 20 iterations, and each block began with an unmeasured one.

Measuring is the share of a race's wall time in measured iterations. Orchestration is the time in
which no worker was starting or in a phase. If the ratio of latencies is far from 1, the two rules
do not measure the same.

    python benchmarks/time_to_verdict.py [--quick]
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs
from _timing import print_goal, print_table

from comparative_benchmark.analysis.machine.host import usable_cpus
from comparative_benchmark.analysis.stats.analysis import latency_interval
from comparative_benchmark.analysis.stats.planning import SamplingRule
from comparative_benchmark.engine.messages import COMMAND, PHASE, Span
from comparative_benchmark.engine.preparation import Preparation
from comparative_benchmark.engine.race import Race
from comparative_benchmark.engine.recording import to_result
from comparative_benchmark.engine.runner import plan
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Trial, parse_competitors
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.compare import compare_to_baseline
from comparative_benchmark.results.record import Result
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.devices import HOST_CPU

BASELINE = "pt_inductor:eager"
_SIX = (
    f"{BASELINE},pt_inductor:inductor,onnxruntime:default,onnxruntime:basic,openvino:latency,"
    "jax_xla:xla"
)
_MODELS = {
    False: "BERT_BASE_FP32_(PT|JAX)_I32_SEQLEN128",
    True: "BERT_TINY_FP32_(PT|JAX)_32XI32_BATCH1",
}
_LESS_TIME, _MEASURING, _ORCHESTRATION = 0.5, 0.4, 0.06
# Half-widths of a few processes have an uncertainty of tens of percent.
_SAME_HALF_WIDTH = 1.25


@attrs.frozen(kw_only=True)
class Rule:
    """A way to run a race."""

    name: str
    settings: RunSettings
    sampling: SamplingRule


@attrs.frozen(kw_only=True)
class Found:
    """Figures of a race.

    Attributes:
      half_width: half-width of the ratios to the baseline, relative, median over the candidates.
      latency_half_width: half-width of the latencies, relative, median over the candidates.
      parts_s: seconds by kind of work.
    """

    wall_s: float
    processes: int
    half_width: float
    latency_half_width: float
    latencies_ms: Mapping[str, float]
    parts_s: Mapping[str, float]

    @property
    def measuring(self) -> float:
        """Share of the race in measured iterations."""
        return self.parts_s["measured"] / self.wall_s

    @property
    def orchestration(self) -> float:
        """Share of the race in which no worker started or was in a phase."""
        return self.parts_s["orchestration"] / self.wall_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="try the script with a tiny model")
    parser.add_argument("--races", type=int, default=2, help="races for each rule (default: 2)")
    options = parser.parse_args()
    trials = _trials(_MODELS[options.quick])
    with tempfile.TemporaryDirectory(prefix="cbs-verdict-") as folder:
        rules = _rules(Path(folder))
        preparation = Preparation(rules[0].settings, print)
        preparation.run(trials)
        artifacts = preparation.artifacts[trials[0].workload.digest]
        found: dict[str, list[Found]] = {rule.name: [] for rule in rules}
        for number in range(1 if options.quick else options.races):
            for rule in rules if number % 2 == 0 else rules[::-1]:
                found[rule.name].append(_raced(rule, trials, artifacts, number))
                print(f"{rule.name}: {found[rule.name][-1].wall_s:.0f} s", flush=True)
    before, now = (found[rule.name] for rule in rules)
    _print(before, now)
    return _goals(before, now)


def _trials(model: str) -> list[Trial]:
    cases = catalog.select(catalog.all_benchmarks(), name=f"models/{model}/.+DEFAULT")
    trials = plan(cases, parse_competitors(_SIX, "cpu"), HOST_CPU).trials
    first = next(trial for trial in trials if str(trial.competitor) == BASELINE)
    return [trial for trial in trials if trial.workload.digest == first.workload.digest]


def _rules(folder: Path) -> list[Rule]:
    now = RunSettings(device=HOST_CPU, baseline=BASELINE, log_dir=folder)
    before = attrs.evolve(now, keep_exports=False, load_together=False)
    old = SamplingRule(steady_span_ms=math.inf, refresh_below_ms=math.inf)
    return [
        Rule(name="before", settings=before, sampling=old),
        Rule(name="now", settings=now, sampling=SamplingRule()),
    ]


def _raced(rule: Rule, trials: Sequence[Trial], artifacts: WorkloadArtifacts, number: int) -> Found:
    settings = attrs.evolve(rule.settings, sampling=attrs.evolve(rule.sampling, seed=number))

    def log_file(trial: Trial, replicate: int) -> Path:
        name = str(trial.competitor).replace(":", "-")
        return settings.log_dir / f"{rule.name}-{number}-{name}.{replicate}.log"

    race = Race(trials, artifacts, settings, log_file=log_file)
    started = time.monotonic()
    race.run()
    wall_s = time.monotonic() - started
    results = [to_result(trial, race.outcomes[trial.key], run_id="race") for trial in trials]
    for result in results:
        if result.reason:
            print(f"{result.definition.competitor}: {result.status.value}: {result.reason}")
    comparisons = compare_to_baseline([Case(result=result) for result in results], BASELINE)
    widths = [item.ratio.relative_half_width for item in comparisons if item.ratio]
    return Found(
        wall_s=wall_s,
        processes=sum(len(outcome.processes) for outcome in race.outcomes.values()),
        half_width=_median(widths),
        latency_half_width=_median(
            latency_interval(samples).relative_half_width
            for samples in map(_samples, results)
            if len(samples) > 1 and all(samples)
        ),
        latencies_ms={
            result.definition.competitor: result.measured.median_ms
            for result in results
            if result.measured.median_ms
        },
        parts_s=_parts(race.timeline.spans, wall_s),
    )


def _samples(result: Result) -> list[list[float]]:
    return [process.latencies_ms for process in result.measured.processes or ()]


def _parts(spans: Iterable[Span], wall_s: float) -> dict[str, float]:
    """Returns the seconds of each kind of work; simultaneous work of workers counts once."""
    kinds: dict[str, list[tuple[int, int]]] = {}
    for span in spans:
        started = span.category == COMMAND and span.name == "start"
        if started or span.category == PHASE:
            kinds.setdefault(_kind(span), []).append((span.start_ns, span.end_ns))
    parts = {kind: _covered(found) for kind, found in kinds.items()}
    everything = [interval for found in kinds.values() for interval in found]
    return {"measured": 0.0, **parts, "orchestration": wall_s - _covered(everything)}


def _kind(span: Span) -> str:
    if span.name == "execute":
        return "measured" if span.args.get("part") == "round" else "warm-up"
    if span.name in ("start", "import", "load", "h2d"):
        return "start and load"
    if span.name in ("trace", "lower"):
        return "export"
    return "compile" if span.name == "compile" else "outputs and the rest"


def _covered(intervals: Iterable[tuple[int, int]]) -> float:
    """Returns the seconds that the intervals cover."""
    covered, reached = 0, 0
    for start, end in sorted(intervals):
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered / 1e9


def _print(before: Sequence[Found], now: Sequence[Found]) -> None:
    kinds = sorted({kind for race in (*before, *now) for kind in race.parts_s})
    rows = [
        ["wall, s", *(f"{_median(r.wall_s for r in of):.0f}" for of in (before, now))],
        ["processes", *(f"{_median(r.processes for r in of):.0f}" for of in (before, now))],
        [
            "half-width of ratios",
            *(f"{_median(r.half_width for r in of):.2%}" for of in (before, now)),
        ],
        [
            "half-width of latencies",
            *(f"{_median(r.latency_half_width for r in of):.2%}" for of in (before, now)),
        ],
        *(
            [
                f"{kind}, share",
                *(
                    f"{_median(r.parts_s.get(kind, 0) / r.wall_s for r in of):.1%}"
                    for of in (before, now)
                ),
            ]
            for kind in kinds
        ),
    ]
    print(f"\n{usable_cpus()} CPUs, {len(before)} races per rule")
    print_table(["", "before", "now"], rows)
    names = [name for name in before[0].latencies_ms if name in now[0].latencies_ms]
    latencies = [
        [_median(r.latencies_ms[name] for r in of) for of in (before, now)] for name in names
    ]
    print()
    print_table(
        ["latency, ms", "before", "now", "now / before"],
        [
            [name, f"{old:.3f}", f"{new:.3f}", f"{new / old:.3f}"]
            for name, (old, new) in zip(names, latencies, strict=True)
        ],
    )


def _goals(before: Sequence[Found], now: Sequence[Found]) -> int:
    time_ratio = _median(r.wall_s for r in now) / _median(r.wall_s for r in before)
    width_ratio = _median(r.half_width for r in now) / _median(r.half_width for r in before)
    measuring, orchestration = (
        _median(getattr(race, name) for race in now) for name in ("measuring", "orchestration")
    )
    goals = {
        f"a race in {_LESS_TIME} x the previous time": (
            time_ratio <= _LESS_TIME,
            f"{time_ratio:.2f} x",
        ),
        "at the same half-width": (width_ratio <= _SAME_HALF_WIDTH, f"{width_ratio:.2f} x"),
        f"at least {_MEASURING:.0%} of a race is measurement": (
            measuring >= _MEASURING,
            f"{measuring:.0%}",
        ),
        f"orchestration takes less than {_ORCHESTRATION:.0%}": (
            orchestration < _ORCHESTRATION,
            f"{orchestration:.1%}",
        ),
    }
    for goal, (met, figure) in goals.items():
        print_goal(goal, met=met, found=figure)
    return 0 if all(met for met, _ in goals.values()) else 1


def _median(values: Iterable[float]) -> float:
    return statistics.median([*values] or [math.nan])


if __name__ == "__main__":
    raise SystemExit(main())
