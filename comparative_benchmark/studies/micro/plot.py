"""Plots speed-up over shape, and over signal-to-noise ratio; requires matplotlib."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.errors import UsageError, check_place
from comparative_benchmark.results.case import Case, latest
from comparative_benchmark.results.comparing.compare import compare_to_baseline
from comparative_benchmark.results.insights import plot_data
from comparative_benchmark.results.insights.plot_data import Mean, Speedup, Trade
from comparative_benchmark.results.record import Result

SUFFIXES = (".svg", ".png", ".pdf")
_WIDTH, _HEIGHT = 7.0, 4.0
_MARGIN = 2
_DECIDED = (Verdict.FASTER, Verdict.SLOWER)


def check(path: Path) -> None:
    """Raises UsageError if a plot cannot be written to the path."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--plot {path}: the name must end in one of {', '.join(SUFFIXES)}")
    try:
        import matplotlib  # noqa: F401  # fail before hours of measurements
    except ImportError as error:
        raise UsageError("--plot needs matplotlib: pip install -e '.[notebook]'") from error
    check_place(path, "--plot")


def panels(
    results: Sequence[Result], baseline: str
) -> tuple[list[plot_data.ShapePanel], list[plot_data.RecipePanel]]:
    """Returns the panels for a sweep: speed-ups over a baseline by shape, and recipes."""
    cases = latest(Case(result=result) for result in results)
    found = {
        (item.workload, item.competitor, item.framework, item.device, item.quantity): item
        for item in compare_to_baseline(cases, baseline)
    }
    judged = [(case, found.get((case.workload, *case.runner, case.quantity))) for case in cases]
    by_shape = [panel for panel in plot_data.shape_panels(judged) if panel.series]
    return by_shape, [panel for panel in plot_data.recipe_panels(cases) if _drawn(panel)]


def draw(results: Sequence[Result], baseline: str, path: Path) -> str:
    """Writes a plot: a panel per operator, and below them speed-up over signal for recipes.

    Returns:
      A message with the path, or with the reason if nothing was plotted.
    """
    by_shape, by_signal = panels(results, baseline)
    if not by_shape and not by_signal:
        return f"no plot: {baseline} and a second competitor measured no shape in common"
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
    for name, found in panel.series.items():
        [line] = axes.plot(*zip(*plot_data.line(found), strict=True), label=name)
        points = [(p.at, p.speedup, p.comparison.verdict in _DECIDED) for p in found]
        _points(axes, points, line.get_color())
    _scaled(axes, [p.speedup.estimate for found in panel.series.values() for p in found])
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
    found = item if isinstance(item, Mean) else item.comparison
    return found is not None and found.verdict in _DECIDED


def _drawn(panel: plot_data.RecipePanel) -> list[Trade]:
    return [trade for trade in panel.trades if trade.speedup is not None]


def _points(axes: Any, points: Sequence[tuple[float, Speedup, bool]], colour: str) -> None:
    """Draws points with their intervals; inconclusive ones are hollow."""
    for wanted, fill in ((True, colour), (False, "white")):
        found = [(at, value) for at, value, decided in points if decided is wanted]
        if found:
            highs = [v.high if math.isfinite(v.high) else v.estimate for _, v in found]
            errors = [
                [value.estimate - value.low for _, value in found],
                [high - value.estimate for high, (_, value) in zip(highs, found, strict=True)],
            ]
            places = zip(*((at, value.estimate) for at, value in found), strict=True)
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
