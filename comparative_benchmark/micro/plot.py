"""Speed-up over shape, and over what it costs in signal, as a picture; needs matplotlib."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.compare import compare_to_baseline
from comparative_benchmark.results.record import Result
from comparative_benchmark.stats.analysis import Interval
from comparative_benchmark.terminal.options import UsageError, check_place

SUFFIXES = (".svg", ".png", ".pdf")
_WIDTH, _HEIGHT = 7.0, 4.0


@attrs.frozen
class Point:
    """One shape by one competitor.

    Attributes:
      size: m times k times n.
      speedup: over the baseline, with its 98 % interval.
      sqnr_db: of a recipe; None elsewhere.
    """

    size: int
    speedup: Interval
    sqnr_db: float | None


Series = dict[str, list[Point]]


def check(path: Path) -> None:
    """Raises UsageError where no picture of that name can be drawn."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--plot {path}: the name ends in none of {', '.join(SUFFIXES)}")
    try:
        import matplotlib  # noqa: F401  # told before hours are measured
    except ImportError as error:
        raise UsageError("--plot needs matplotlib: pip install -e '.[notebook]'") from error
    check_place(path, "--plot")


def points(results: Iterable[Result], baseline: str) -> dict[str, Series]:
    """Returns the points of each panel, an operator in a type, by competitor; small shapes first.

    Args:
      results: of a sweep.
      baseline: the competitor that speed-ups are over.
    """
    cases = [Case(result=result) for result in results]
    by_place = {(case.workload, case.competitor, case.framework): case for case in cases}
    panels: defaultdict[str, defaultdict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for found in compare_to_baseline(cases, baseline):
        case = by_place.get((found.workload, found.competitor, found.framework))
        if found.ratio is None or case is None:
            continue
        parameters = case.result.definition.model_parameters
        if not {"model_name", "m", "k", "n"} <= parameters.keys():
            continue  # the model that `--from-model` names
        size = 1
        for letter in "mkn":
            size *= int(parameters[letter] or 1)
        ratio, judged = found.ratio, case.metrics.verification
        # Ratios are of times: a speed-up is the inverse, and so are its limits.
        speedup = attrs.evolve(
            ratio, estimate=1 / ratio.estimate, low=1 / ratio.high, high=1 / ratio.low
        )
        noise = judged.sqnr_db if found.arithmetic and judged else None
        panel = f"{parameters['model_name']}, {case.result.definition.data_type}"
        name = f"{found.competitor} ({found.framework})"
        panels[panel][name].append(Point(size, speedup, noise))
    return {
        panel: {name: sorted(found, key=lambda point: point.size) for name, found in series.items()}
        for panel, series in panels.items()
    }


def draw(results: Sequence[Result], baseline: str, path: Path) -> str:
    """Writes a picture: a panel for each operator, and beside it speed against signal of recipes.

    Returns:
      Where it is, or why there is none, in words.
    """
    panels = points(results, baseline)
    if not panels:
        return f"no plot: no shape was measured by {baseline} and another"
    from matplotlib.figure import Figure

    lossy = any(p.sqnr_db for series in panels.values() for found in series.values() for p in found)
    columns = 2 if lossy else 1
    figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), columns, squeeze=False)
    for row, (panel, series) in zip(axes, panels.items(), strict=True):
        _over_shape(row[0], series)
        row[0].set(title=panel, xlabel="m k n", ylabel=f"speed-up over {baseline}")
        if lossy:
            _over_signal(row[1], series)
            row[1].set(title=panel, xlabel="signal to noise, dB", ylabel="speed-up over its fp")
    try:
        figure.savefig(path)
    except OSError as error:
        return f"no plot: {error}"
    return f"plot: {path}"


def _over_shape(axes: Any, series: Series) -> None:
    for name, found in series.items():
        sizes, values = [p.size for p in found], [p.speedup.estimate for p in found]
        axes.errorbar(sizes, values, yerr=_errors(found), marker="o", capsize=2, label=name)
    _scaled(axes)
    axes.set_xscale("log", base=2)


def _over_signal(axes: Any, series: Series) -> None:
    for name, found in series.items():
        kept = [point for point in found if point.sqnr_db is not None]
        if kept:
            signal, values = [p.sqnr_db for p in kept], [p.speedup.estimate for p in kept]
            axes.errorbar(signal, values, yerr=_errors(kept), fmt="o", capsize=2, label=name)
    _scaled(axes)


def _errors(found: Sequence[Point]) -> list[list[float]]:
    return [
        [point.speedup.estimate - point.speedup.low for point in found],
        [point.speedup.high - point.speedup.estimate for point in found],
    ]


def _scaled(axes: Any) -> None:
    axes.set_yscale("log")
    for axis in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis(lambda value, _: f"{value:g}")
    axes.axhline(1, color="grey", linewidth=1)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
