"""Data of plots: speed-ups of operators over shapes, and speed and accuracy of recipes.

Recipes are compared with their own stacks.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from comparative_benchmark.analysis.stats.analysis import (
    NOISE_THRESHOLD,
    Interval,
    LogRatio,
    Verdict,
    mean_ratio,
    verdict,
)
from comparative_benchmark.results.case import COLD_COMPILE, Case
from comparative_benchmark.results.comparing.compare import Family
from comparative_benchmark.results.comparing.comparison import (
    COMPILE_THRESHOLD,
    MOST_DISTURBED,
    Comparison,
)
from comparative_benchmark.results.record import Result, Status
from openxla.benchmark.operators import guide_functions
from openxla.benchmark.operators.architecture import OperatorArchitecture

_LETTERS = "mkn"


@attrs.frozen
class Point:
    """One shape run by one competitor.

    Attributes:
      at: position on the axis of its panel.
      comparison: comparison with the baseline, which has a ratio.
    """

    case: Case
    at: int
    comparison: Comparison
    speedup: Interval


@attrs.frozen(kw_only=True)
class ShapePanel:
    """An operator in one data type on one machine, over shapes.

    Attributes:
      axis: the dimensions in which shapes differ: a letter, e.g. `k`, or a product, e.g. `m k n`.
      series: points by competitor and framework, along the axis.
      left_out: results without a speed-up: wrong, unsupported, failed, or without a baseline.
    """

    operator: str
    data_type: str
    device: str
    machine: str
    quantity: str
    axis: str
    series: Mapping[str, Sequence[Point]]
    left_out: Sequence[Case]

    @property
    def name(self) -> str:
        """Display name of the panel."""
        return f"{self.operator}, {self.data_type}"


def sizes_of(result: Result) -> dict[str, int] | None:
    """Returns m, k and n of an operator's result; None for other models."""
    definition = result.definition
    name, _, _ = definition.workload.architecture.partition("/")
    given = {letter: definition.model_parameters.get(letter) for letter in _LETTERS}
    is_one = name in (OperatorArchitecture.name, guide_functions.IMPLEMENTATION)
    if not is_one or "model_name" not in definition.model_parameters:
        return None
    sizes = {letter: size for letter, size in given.items() if isinstance(size, int) and size > 0}
    return sizes if len(sizes) == len(_LETTERS) else None


def operator_of(result: Result) -> str | None:
    """Returns the operator of a result; None for other models.

    Operators that also run backward count as different operators, with the direction in the name.
    """
    if sizes_of(result) is None:
        return None
    parameters = result.definition.model_parameters
    names = (parameters.get(name) for name in ("model_name", "direction"))
    return " ".join(str(name) for name in names if name)


def selection_of(result: Result) -> str | None:
    """Returns the options of `cbs micro run` that select an operator's result; None for others."""
    sizes, operator = sizes_of(result), operator_of(result)
    data_type = str(result.definition.model_parameters.get("data_type"))
    # Results files are untrusted: only plain words may become part of a command.
    if sizes is None or not (operator or "").isidentifier() or not data_type.isalnum():
        return None
    return f"--op {operator} --shapes {'x'.join(map(str, sizes.values()))} --dtype {data_type}"


def shape_panels(judged: Iterable[tuple[Case, Comparison | None]]) -> list[ShapePanel]:
    """Returns a panel for each operator, type and machine, in the order of the results.

    Args:
      judged: cases with their comparison; None for the baseline. Models that are not operators are
        ignored.
    """
    groups: defaultdict[tuple[str, ...], list[tuple[Case, Comparison | None]]] = defaultdict(list)
    for case, comparison in judged:
        if operator := operator_of(case.result):
            definition = case.result.definition
            data_type = str(definition.data_type or definition.workload.data_type)
            key = (operator, data_type, case.device, case.machine, case.quantity)
            groups[key].append((case, comparison))
    return [_panel(key, group) for key, group in groups.items()]


def line(points: Sequence[Point]) -> list[tuple[int, float]]:
    """Returns a line through points; several points at one position are replaced by their mean.

    The mean is geometric. It guides the eye and is not a measurement.
    """
    logs: defaultdict[int, list[float]] = defaultdict(list)
    for point in points:
        logs[point.at].append(math.log(point.speedup.estimate))
    return [(at, math.exp(math.fsum(values) / len(values))) for at, values in sorted(logs.items())]


def _panel(key: tuple[str, ...], group: Sequence[tuple[Case, Comparison | None]]) -> ShapePanel:
    operator, data_type, device, machine, quantity = key
    axis = _axis([sizes_of(case.result) or {} for case, _ in group])
    series: defaultdict[str, list[Point]] = defaultdict(list)
    left_out = []
    for case, comparison in group:
        if comparison and comparison.ratio:
            at = math.prod((sizes_of(case.result) or {})[letter] for letter in axis)
            placed = Point(case, at, comparison, comparison.ratio.inverse)
            series[f"{case.competitor} ({case.framework})"].append(placed)
        elif comparison or case.result.reason:
            left_out.append(case)
    return ShapePanel(
        operator=operator,
        data_type=data_type,
        device=device,
        machine=machine,
        quantity=quantity,
        axis=" ".join(axis),
        series={
            name: sorted(points, key=lambda point: (point.at, point.case.label))
            for name, points in series.items()
        },
        left_out=left_out,
    )


def _axis(shapes: Sequence[Mapping[str, int]]) -> str:
    """Returns the dimension that varies; if several do, all dimensions of the operator."""
    varying = [letter for letter in _LETTERS if len({sizes[letter] for sizes in shapes}) > 1]
    if len(varying) == 1:
        return varying[0]
    used = [letter for letter in _LETTERS if any(sizes[letter] > 1 for sizes in shapes)]
    return "".join(used) or "m"


@attrs.frozen(kw_only=True)
class Trade:
    """A recipe on one workload: its speed-up and its signal-to-noise ratio.

    Attributes:
      stack: the same backend, compiler and framework without the recipe, e.g. `jax_xla:xla (jax)`.
      own: result of that stack; None if it was not measured.
      comparison: comparison with that result; None without it.
      speedup, sqnr_db: speed-up and signal-to-noise ratio; None unless both are known.
    """

    case: Case
    stack: str
    own: Case | None
    comparison: Comparison | None
    speedup: Interval | None
    sqnr_db: float | None

    @property
    def recipe(self) -> str:
        """The recipe with its parameters, or the precision if a compiler implies it."""
        return self.case.data_type

    @property
    def why(self) -> str:
        """Why the recipe cannot be plotted; empty if it can."""
        if self.case.status is not Status.OK:
            return self.case.why
        if self.comparison is None:
            return "the stack was not measured without the recipe"
        if self.comparison.ratio is None:
            return self.comparison.reason
        return "" if self.speedup else "the signal-to-noise ratio is unknown"


@attrs.frozen(kw_only=True)
class Mean:
    """A recipe over several shapes.

    Attributes:
      recipe: recipe with its parameters.
      ratio: geometric mean of the times relative to the stack; `speedup` is its inverse.
      sqnr_db: median signal-to-noise ratio.
      shapes: number of shapes.
    """

    recipe: str
    stack: str
    ratio: Interval
    speedup: Interval
    verdict: Verdict
    sqnr_db: float
    shapes: int


@attrs.frozen(kw_only=True)
class RecipePanel:
    """Recipes on one machine, for one model, or for one operator and data type over shapes.

    Attributes:
      trades: recipes on all shapes.
      means: means over the shapes common to all recipes; empty if there are fewer than two.
    """

    name: str
    device: str
    machine: str
    quantity: str
    trades: Sequence[Trade]
    means: Sequence[Mean]


def recipe_panels(
    cases: Iterable[Case], *, threshold: float = NOISE_THRESHOLD
) -> list[RecipePanel]:
    """Returns a panel for each model or operator with recipes."""
    places: defaultdict[Hashable, list[Case]] = defaultdict(list)
    for case in cases:
        places[case.workload, case.device, case.machine, case.quantity].append(case)
    groups: defaultdict[tuple[str, str, str, str], list[Trade]] = defaultdict(list)
    for group in places.values():
        family = Family(group, threshold=threshold)
        for case in (case for case in group if case.is_recipe):
            key = (_name(case), case.device, case.machine, case.quantity)
            groups[key].append(_trade(case, group, family))
    return [
        RecipePanel(
            name=name,
            device=device,
            machine=machine,
            quantity=quantity,
            trades=trades,
            means=_means(trades, threshold),
        )
        for (name, device, machine, quantity), trades in groups.items()
    ]


def fronts(items: Iterable[Trade | Mean]) -> dict[str, list[Trade | Mean]]:
    """Returns the Pareto frontier of each stack: recipes not beaten in both speed and signal.

    Frontiers do not span stacks, because each speed-up is relative to its own stack.

    Args:
      items: recipes on one shape, or means; those without a speed-up are ignored.

    Returns:
      For each stack, recipes with decreasing signal and increasing speed.
    """
    stacks: defaultdict[str, list[Trade | Mean]] = defaultdict(list)
    for item in items:
        if item.speedup is not None:
            stacks[item.stack].append(item)
    return {stack: _front(points) for stack, points in stacks.items()}


def _front(items: Sequence[Trade | Mean]) -> list[Trade | Mean]:
    def place(item: Trade | Mean) -> tuple[float, float]:
        return (item.sqnr_db or 0.0, item.speedup.estimate if item.speedup else 0.0)

    marks: list[Trade | Mean] = []
    for item in sorted(items, key=place, reverse=True):
        if not marks or place(item)[1] > place(marks[-1])[1]:
            marks.append(item)
    return marks


def _name(case: Case) -> str:
    operator, definition = operator_of(case.result), case.result.definition
    if operator is None:
        return case.label
    return f"{operator}, {definition.data_type or definition.workload.data_type}"


def _trade(case: Case, group: Sequence[Case], family: Family) -> Trade:
    label, own = _own_stack(case, group)
    comparison = family.comparison(own, case) if own else None
    verification = case.metrics.verdict
    noise = verification.sqnr_db if verification else None
    ratio = comparison.ratio if comparison and noise is not None else None
    return Trade(
        case=case,
        stack=f"{label} ({case.framework})",
        own=own,
        comparison=comparison,
        speedup=ratio.inverse if ratio else None,
        sqnr_db=noise if ratio else None,
    )


def _own_stack(case: Case, group: Sequence[Case]) -> tuple[str, Case | None]:
    """Returns the name and the result of the same stack without the recipe.

    A recipe is an option of a compiler. If a separate compiler implements it, such as LiteRT's
    `dynamic-range`, the stack is the only one of the backend that keeps the data type.
    """
    definition = case.result.definition
    others = [
        other for other in group if not other.is_recipe and _stack_of(other) == _stack_of(case)
    ]
    options = tuple(option for option in definition.options if option != definition.precision)
    if options != definition.options:
        compiler = definition.compiler.replace(f"+{definition.precision}", "", 1)
        where = f"@{definition.environment.name}" if definition.environment else ""
        name = f"{definition.backend}:{compiler}{where}"
        return name, next((other for other in others if other.competitor == name), None)
    only = others[0] if len(others) == 1 else None
    return (only.competitor if only else definition.backend), only


def _stack_of(case: Case) -> Any:
    definition = case.result.definition
    return (definition.backend, definition.environment, case.framework)


def _means(trades: Sequence[Trade], threshold: float) -> list[Mean]:
    recipes: defaultdict[tuple[str, str], dict[str, Trade]] = defaultdict(dict)
    for trade in trades:
        if trade.speedup is not None:
            recipes[trade.recipe, trade.stack][trade.case.workload] = trade
    shared = set.intersection(*map(set, recipes.values())) if recipes else set()
    if len(shared) < 2:
        return []
    means = []
    for (recipe, stack), by_shape in recipes.items():
        kept = [by_shape[shape] for shape in sorted(shared)]
        ratios: list[list[LogRatio]] = [
            [trade.comparison.log_ratio]
            for trade in kept
            if trade.comparison and trade.comparison.log_ratio
        ]
        ratio = mean_ratio(ratios)
        is_compile = kept[0].case.quantity == COLD_COMPILE
        limit = max(threshold, COMPILE_THRESHOLD) if is_compile else threshold
        outcome, _ = verdict(ratio, threshold=limit)
        disturbed = sum(bool(trade.comparison and trade.comparison.disturbed) for trade in kept)
        if disturbed >= MOST_DISTURBED * len(kept):
            outcome = Verdict.UNCLEAR
        means.append(
            Mean(
                recipe=recipe,
                stack=stack,
                ratio=ratio,
                speedup=ratio.inverse,
                verdict=outcome,
                sqnr_db=statistics.median(trade.sqnr_db or 0.0 for trade in kept),
                shapes=len(kept),
            )
        )
    return means
