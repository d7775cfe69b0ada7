"""Sweeps over shapes: their estimated cost, their outcome by competitor, and its plots.

Plots show speed-up over shape, and over signal-to-noise ratio; they require matplotlib.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.analysis.stats.analysis import Interval, Verdict
from comparative_benchmark.analysis.stats.planning import FixedCounts, SamplingRule
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.errors import UsageError, check_place
from comparative_benchmark.results.case import Case, latest
from comparative_benchmark.results.comparing import plot_data
from comparative_benchmark.results.comparing.compare import compare_to_baseline
from comparative_benchmark.results.comparing.comparison import Comparison
from comparative_benchmark.results.comparing.plot_data import Mean, Trade
from comparative_benchmark.results.record import Result
from comparative_benchmark.terminal.status import duration
from openxla.benchmark.def_types import TensorSpec
from openxla.benchmark.models import architectures
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.operators.architecture import (
    OperatorArchitecture,
    flops_of,
    operator_of,
    shape_of,
)
from openxla.benchmark.operators.definition import Layer

# Per thread, a lower bound for most operators on a CPU of the last ten years.
_FLOPS, _BYTES = 20e9, 3e9
# Measured on two cores, with iterations of at most 1 ms. Per process: loading, compiling, verifying
# and the second input; the warm-up; a block. Then warm-up iterations, rounds, processes per trial,
# the start of a worker, and the truth of a workload.
_HANDLING_S, _WARM_UP_S, _BLOCK_S = 0.7, 0.3, 0.05
_WARM_UPS, _ROUNDS, _PROCESSES = 20, 24, 5
_START_S, _TRUTH_S = 4.0, 0.4
_MOST_ROUNDS_S = 10.0
_SIZES = {"f32": 4, "i32": 4, "i8": 1}

PLOT_SUFFIXES = (".svg", ".png", ".pdf")
_WIDTH, _HEIGHT = 7.0, 4.0
_MARGIN = 2
_DECIDED = (Verdict.FASTER, Verdict.SLOWER)


@attrs.frozen(kw_only=True)
class Estimate:
    """Estimate for a whole sweep.

    Attributes:
      trials: number of trials.
      seconds: total duration.
      bytes: memory use of the largest workload.
      fitting: approximate number of trials that fit into the budget.
      budget_s: budget of the run; None for no limit.
    """

    trials: int
    seconds: float
    bytes: int
    fitting: int
    budget_s: float | None = None

    def __str__(self) -> str:
        sums = f"trials: {self.trials}, about {duration(self.seconds)}"
        text = f"{sums}; the largest uses {self.bytes / 2**30:.1f} GiB"
        if self.budget_s is None or self.fitting == self.trials:
            return text
        return f"{text}; --budget {self.budget_s:g} is enough for about {self.fitting} of them"


def estimate(trials: Sequence[Trial], settings: RunSettings) -> Estimate:
    """Estimates trials of operators, in order; the last ones may not fit into the budget.

    With a budget, each trial is assumed to use the minimum number of processes.
    """
    tried = [trial for trial in trials if trial.refused is None]
    shares = settings.share_workers
    started: set[str] = set()
    workloads: set[str] = set()
    seconds, fitting = 0.0, 0
    for trial in tried:
        count = _processes(trial, settings)
        seconds += count * _process_s(trial, settings)
        if trial.workload.digest not in workloads:
            workloads.add(trial.workload.digest)
            seconds += _TRUTH_S
        if not shares or str(trial.competitor) not in started:
            started.add(str(trial.competitor))
            seconds += count * _START_S
        fitting += settings.budget_s is None or seconds <= settings.budget_s
    return Estimate(
        trials=len(tried),
        seconds=seconds,
        bytes=max(map(needed_bytes, tried), default=0),
        fitting=fitting,
        budget_s=settings.budget_s,
    )


def _process_s(trial: Trial, settings: RunSettings) -> float:
    """Returns the duration of one process of a trial, without its start."""
    parameters = trial.case.model.model_parameters
    flops = 0
    if isinstance(_architecture(trial), OperatorArchitecture):
        flops = flops_of(parameters)
    iteration_s = max(flops / _FLOPS, size_bytes(trial) / _BYTES) / settings.threads
    rule = settings.sampling
    if isinstance(rule, FixedCounts):
        return _HANDLING_S + (rule.warmup_iterations + rule.iterations) * iteration_s
    rounds_s = _ROUNDS * max(_BLOCK_S, iteration_s)
    return _HANDLING_S + max(_WARM_UP_S, _WARM_UPS * iteration_s) + min(rounds_s, _MOST_ROUNDS_S)


def _processes(trial: Trial, settings: RunSettings) -> int:
    """Returns the expected number of processes: the minimum, unless there is time for more."""
    rule = settings.sampling
    if not isinstance(rule, SamplingRule):
        return 1
    fitting = math.ceil(rule.trial_budget_s / _process_s(trial, settings))
    usual = rule.min_processes if settings.budget_s is not None else _PROCESSES
    return max(rule.min_processes, min(usual, rule.max_processes, fitting))


def size_bytes(trial: Trial) -> int:
    """Returns the total size of inputs, outputs and weights; 0 if it is unknown."""
    return sum(math.prod(spec.shape) * _size(spec) for spec in _specs(trial))


def needed_bytes(trial: Trial) -> int:
    """Returns the memory needed to verify a trial: two copies in its own type, one in float64."""
    return sum(math.prod(spec.shape) * (2 * _size(spec) + 8) for spec in _specs(trial))


def why_too_large(trial: Trial, settings: RunSettings) -> str | None:
    """Returns why a trial does not fit into memory; None if it does. Allocates nothing.

    Args:
      trial: trial of an operator or layer.
      settings: settings of the run, with the memory limit of a worker.
    """
    needed, limit = needed_bytes(trial), settings.limits.memory_bytes
    if needed <= limit:
        return None
    return (
        f"the trial needs about {needed / 2**30:.1f} GiB of memory, including its float64 truth, "
        f"but the limit is {limit / 2**30:.1f} GiB; use smaller shapes, e.g. reduce --max-power"
    )


def _specs(trial: Trial) -> list[TensorSpec]:
    architecture = _architecture(trial)
    if architecture is None:
        return []
    parameters = architecture.complete(trial.case.model.model_parameters)
    specs = [*architecture.input_specs(parameters), *architecture.output_specs(parameters)]
    if isinstance(architecture, OperatorArchitecture):
        operator = operator_of(parameters)
        if isinstance(operator, Layer):
            weights = operator.weights(*shape_of(parameters))
            specs += [TensorSpec(shape=init.shape, dtype=specs[0].dtype) for init in weights]
    return specs


def _architecture(trial: Trial) -> Architecture | None:
    name = trial.case.model.model_impl.architecture
    return None if name is None else architectures.get(name)


def _size(spec: TensorSpec) -> int:
    return _SIZES.get(spec.dtype, 2)


def by_competitor(results: Sequence[Result], baseline: str | None) -> Iterator[str]:
    """Yields a sentence per competitor: numbers of shapes won and lost, and the extremes.

    Only shapes with a verdict count as won or lost; shapes that one of the two cannot run are
    ignored.

    Args:
      results: results of a sweep.
      baseline: the competitor that ratios are relative to; None for none.
    """
    if baseline is None:
        return
    groups: defaultdict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for item in compare_to_baseline([Case(result=result) for result in results], baseline):
        if item.ratio is not None:
            groups[item.competitor, item.framework].append(item)
    for (competitor, framework), comparisons in groups.items():
        won, lost = (
            [item for item in comparisons if item.verdict is verdict]
            for verdict in (Verdict.FASTER, Verdict.SLOWER)
        )
        text = (
            f"{competitor} ({framework}) against {baseline}: faster on {len(won)} and slower on "
            f"{len(lost)} of {len(comparisons)} shapes"
        )
        extremes = [
            f"worst {_ratio_text(max(lost, key=_estimate))}" if lost else "",
            f"best {_ratio_text(min(won, key=_estimate))}" if won else "",
        ]
        yield "; ".join(filter(None, (text, *extremes)))


def _estimate(item: Comparison) -> float:
    assert item.ratio is not None
    return item.ratio.estimate


def _ratio_text(item: Comparison) -> str:
    ratio = item.ratio
    assert ratio is not None
    return f"{ratio.estimate:.2f} x ({ratio.low:.2f}-{ratio.high:.2f}) at {item.label}"


def check_plot(path: Path) -> None:
    """Raises UsageError if a plot cannot be written to the path."""
    if path.suffix not in PLOT_SUFFIXES:
        raise UsageError(f"--plot {path}: file name must end in one of {', '.join(PLOT_SUFFIXES)}")
    try:
        import matplotlib  # noqa: F401  # fail before hours of measurements
    except ImportError as error:
        raise UsageError("--plot requires matplotlib; run pip install -e '.[notebook]'") from error
    check_place(path, "--plot")


def panels(
    results: Sequence[Result], baseline: str
) -> tuple[list[plot_data.ShapePanel], list[plot_data.RecipePanel]]:
    """Returns the panels for a sweep: speed-ups over a baseline by shape, and recipes."""
    cases = latest(Case(result=result) for result in results)
    items = {
        (item.workload, item.competitor, item.framework, item.device, item.quantity): item
        for item in compare_to_baseline(cases, baseline)
    }
    judged = [(case, items.get((case.workload, *case.runner, case.quantity))) for case in cases]
    by_shape = [panel for panel in plot_data.shape_panels(judged) if panel.series]
    return by_shape, [panel for panel in plot_data.recipe_panels(cases) if _drawn(panel)]


def draw_plot(results: Sequence[Result], baseline: str, path: Path) -> str:
    """Writes a plot: a panel per operator, and below them speed-up over signal for recipes.

    Returns:
      A message with the path, or with the reason if nothing was plotted.
    """
    by_shape, by_signal = panels(results, baseline)
    if not by_shape and not by_signal:
        return f"no plot: no shape was measured with both {baseline} and another competitor"
    from matplotlib.figure import Figure

    count = len(by_shape) + len(by_signal)
    figure = Figure(figsize=(_WIDTH, _HEIGHT * count), layout="constrained")
    axes = iter(figure.subplots(count, 1, squeeze=False).flat)
    for shapes in by_shape:
        axis = next(axes)
        _over_shape(axis, shapes)
        axis.set(title=shapes.name, xlabel=shapes.axis, ylabel=f"speed-up over {baseline}")
    for bits in by_signal:
        axis = next(axes)
        _over_signal(axis, bits)
        label = "speed-up over the same stack without the recipe"
        over = f", means over {bits.means[0].shapes} shapes" if bits.means else ""
        axis.set(title=f"{bits.name}{over}", xlabel="signal-to-noise ratio, dB", ylabel=label)
    try:
        figure.savefig(path)
    except OSError as error:
        return f"no plot: {error}"
    return f"plot: {path}"


def _over_shape(axes: Any, panel: plot_data.ShapePanel) -> None:
    for name, series in panel.series.items():
        [line] = axes.plot(*zip(*plot_data.line(series), strict=True), label=name)
        points = [(p.at, p.speedup, p.comparison.verdict in _DECIDED) for p in series]
        _points(axes, points, line.get_color())
    _scaled(axes, [p.speedup.estimate for series in panel.series.values() for p in series])
    axes.set_xscale("log", base=2)


def _over_signal(axes: Any, panel: plot_data.RecipePanel) -> None:
    """Draws recipes by stack, with a line through each stack's Pareto front."""
    items = panel.means or _drawn(panel)
    for stack, front in plot_data.fronts(items).items():
        [line] = axes.plot(*zip(*map(_place, front), strict=True), label=stack)
        own = [item for item in items if item.stack == stack]
        points = [
            (_place(item)[0], item.speedup, _is_decided(item)) for item in own if item.speedup
        ]
        _points(axes, points, line.get_color())
        for item in own:
            axes.annotate(item.recipe, _place(item), (5, 5), textcoords="offset points")
    _scaled(axes, [_place(item)[1] for item in items])


def _place(item: Trade | Mean) -> tuple[float, float]:
    assert item.sqnr_db is not None
    assert item.speedup is not None
    return item.sqnr_db, item.speedup.estimate


def _is_decided(item: Trade | Mean) -> bool:
    comparison = item if isinstance(item, Mean) else item.comparison
    return comparison is not None and comparison.verdict in _DECIDED


def _drawn(panel: plot_data.RecipePanel) -> list[Trade]:
    return [trade for trade in panel.trades if trade.speedup is not None]


def _points(axes: Any, points: Sequence[tuple[float, Interval, bool]], colour: str) -> None:
    """Draws points with their intervals; inconclusive ones are hollow."""
    for wanted, fill in ((True, colour), (False, "white")):
        chosen = [(at, value) for at, value, decided in points if decided is wanted]
        if chosen:
            errors = [
                [value.estimate - value.low for _, value in chosen],
                [value.high - value.estimate for _, value in chosen],
            ]
            places = zip(*((at, value.estimate) for at, value in chosen), strict=True)
            axes.errorbar(*places, yerr=errors, fmt="o", capsize=2, color=colour, mfc=fill)


def _scaled(axes: Any, estimates: Sequence[float]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    # Limit the axis to the estimates, because intervals of a single process may be huge.
    axes.set_ylim(min(1, *estimates) / _MARGIN, max(1, *estimates) * _MARGIN)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.axhline(1, color="grey", linewidth=1)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
