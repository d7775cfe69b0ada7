"""The main chart as an image: speed-ups with their intervals."""

import math
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from comparative_benchmark.reporting.report import wording
from comparative_benchmark.reporting.report.inputs import ReportError
from comparative_benchmark.reporting.report.standings import Contest, Mean
from comparative_benchmark.reporting.report.summary import Summary
from openxla.benchmark.files import new_file

_CANVASES = {".png": FigureCanvasAgg, ".svg": FigureCanvasSVG}
# Blue and orange are distinguishable for colour-blind people, and in grey by lightness.
_COLOURS = {"ahead": "#0b62b8", "behind": "#c2641a", "even": "#6b7580"}
_ROW_INCHES, _FRAME_INCHES = 0.36, 1.3


def save(summary: Summary, path: Path, *, title: str) -> None:
    """Writes the chart as PNG or SVG, depending on the file name.

    Raises:
      ReportError: the suffix is unknown, there is nothing to draw, or writing fails.
    """
    canvas = _CANVASES.get(path.suffix.lower())
    if canvas is None:
        raise ReportError(f"--chart {path}: the file name must end in .png or .svg")
    shown = [contest for contest in summary.contests if contest.ranked]
    if not shown:
        raise ReportError("cannot draw the chart: no two competitors could be compared")
    heights = [len(contest.standings) * _ROW_INCHES + _FRAME_INCHES for contest in shown]
    figure = Figure(figsize=(9, sum(heights) + 0.4), layout="constrained")
    figure.suptitle(_escaped(title))
    grid = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)
    for axes, contest in zip(grid[:, 0], shown, strict=True):
        _draw(axes, contest, summary.baseline)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as unfinished:
            canvas(figure).print_figure(unfinished, format=path.suffix[1:].lower(), dpi=120)
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error}") from error


def _draw(axes: Axes, contest: Contest, baseline: str) -> None:
    rows = list(reversed(contest.standings))
    for position, standing in enumerate(rows):
        mean = standing.mean
        if standing.is_baseline:
            axes.plot(1.0, position, "o", color=_COLOURS["even"])
        if standing.is_baseline or mean is None:
            continue
        colour = _COLOURS[mean.side]
        axes.plot([max(mean.low, 1e-6), min(mean.high, 1e6)], [position] * 2, color=colour, lw=2.5)
        axes.plot(
            mean.estimate, position, "o", color=colour, mfc=colour if standing.common else "w"
        )
        axes.annotate(
            _label(mean, standing.cases),
            (1.01, position),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=9,
        )
    axes.axvline(1.0, color=_COLOURS["even"], ls="--", lw=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_xlim()
    # Includes at least one round value on each side of 1.
    axes.set_xlim(min(low, 0.8), max(high, 1.25))
    axes.set_yticks(range(len(rows)), [_escaped(standing.name) for standing in rows], fontsize=9)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel(_escaped(f"speed-up over {baseline}, 98 % intervals (log)"), fontsize=9)
    shared = f"{contest.common_cases} of {wording.plural(contest.cases, 'workload')} in common"
    axes.set_title(_escaped(f"{contest.name}: {shared}"), fontsize=10, loc="left")


def _label(mean: Mean, cases: int) -> str:
    limits = f" ({wording.limits(mean)})" if math.isfinite(mean.high) else ""
    return f"{wording.speedup(mean)}{limits}, {mean.cases} of {cases}"


def _escaped(text: str) -> str:
    # matplotlib would parse text between two dollar signs as a formula.
    return text.replace("$", r"\$")
