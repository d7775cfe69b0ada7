"""Data for plots of operators over shapes, and of recipes by the signal that they keep.

A point is the index of its case, whose columns have the numbers. Only other data are stored here:
lines, means, and speed-ups over a recipe's own stack.
"""

from collections.abc import Mapping, Sequence

from comparative_benchmark.reporting.report.columns import Json, Tables, short, speedup_ends
from comparative_benchmark.reporting.report.standings import Judged
from comparative_benchmark.results.comparing.comparison import Comparison
from comparative_benchmark.results.insights import plot_data
from comparative_benchmark.results.insights.plot_data import Mean, Trade, speedup


def over_shapes_of(judged: Sequence[Judged]) -> list[Json]:
    """Returns a panel for each operator and type: points by competitor, and missing cases."""
    at = {id(item.case): position for position, item in enumerate(judged)}
    found = plot_data.shape_panels((item.case, item.comparison) for item in judged)
    return [
        {
            "name": panel.name,
            **_where(panel),
            "axis": panel.axis,
            "series": [
                [
                    name,
                    [[at[id(point.case)], point.at] for point in points],
                    [[place, short(mean)] for place, mean in plot_data.line(points)],
                ]
                for name, points in panel.series.items()
            ],
            "left_out": [at[id(case)] for case in panel.left_out],
        }
        for panel in found
    ]


def fewer_bits_of(judged: Sequence[Judged], *, threshold: float, tables: Tables) -> list[Json]:
    """Returns a panel for each model or operator that was measured with a recipe."""
    at = {id(item.case): position for position, item in enumerate(judged)}
    found = plot_data.recipe_panels((item.case for item in judged), threshold=threshold)
    return [_bits_panel(panel, at, tables) for panel in found]


def _bits_panel(panel: plot_data.RecipePanel, at: Mapping[int, int], tables: Tables) -> Json:
    stacks = list(dict.fromkeys(trade.stack for trade in panel.trades))
    shapes: dict[str, list[Trade]] = {}
    for trade in panel.trades:
        shapes.setdefault(trade.case.label, []).append(trade)
    ahead = _ahead(panel.means)
    return {
        "name": panel.name,
        **_where(panel),
        "stacks": stacks,
        "shapes": [
            {"label": label, "trades": _trades(trades, stacks, at, tables)}
            for label, trades in shapes.items()
        ],
        "means": [
            {
                "recipe": mean.recipe,
                "stack": stacks.index(mean.stack),
                "speedup": speedup_ends(mean.speedup),
                "replicates": mean.ratio.processes,
                "verdict": mean.verdict.value,
                "signal": short(mean.sqnr_db),
                "shapes": mean.shapes,
                "front": id(mean) in ahead,
            }
            for mean in panel.means
        ],
    }


def _trades(
    trades: Sequence[Trade], stacks: Sequence[str], at: Mapping[int, int], tables: Tables
) -> list[Json]:
    ahead = _ahead(trades)
    return [
        {
            "case": at[id(trade.case)],
            "own": at[id(trade.own)] if trade.own else None,
            "recipe": trade.recipe,
            "stack": stacks.index(trade.stack),
            "why": tables.text(trade.why or None),
            "front": id(trade) in ahead,
            **(_ratio(trade.comparison) if trade.comparison and trade.speedup else {}),
        }
        for trade in trades
    ]


def _ratio(comparison: Comparison) -> Json:
    assert comparison.ratio is not None
    return {
        "speedup": speedup_ends(speedup(comparison.ratio)),
        "replicates": comparison.ratio.processes,
        "verdict": comparison.verdict.value,
    }


def _ahead(items: Sequence[Trade] | Sequence[Mean]) -> set[int]:
    """Returns which items are on the frontier of their stack."""
    return {id(item) for front in plot_data.fronts(items).values() for item in front}


def _where(panel: plot_data.ShapePanel | plot_data.RecipePanel) -> Json:
    return {"device": panel.device, "machine": panel.machine, "quantity": panel.quantity}
