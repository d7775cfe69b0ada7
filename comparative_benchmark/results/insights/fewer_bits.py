"""Speed and accuracy of recipes, compared with their own stacks."""

import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
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
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.comparison import Comparison
from comparative_benchmark.results.comparing.family import Family
from comparative_benchmark.results.insights.over_shapes import Speedup, operator_of, speedup
from comparative_benchmark.results.record import Status


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
    speedup: Speedup | None
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
            return "its stack was not measured without the recipe"
        if self.comparison.ratio is None:
            return self.comparison.reason
        return "" if self.speedup else "its signal-to-noise ratio is unknown"


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
    speedup: Speedup
    verdict: Verdict
    sqnr_db: float
    shapes: int


@attrs.frozen(kw_only=True)
class Panel:
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


def is_recipe(case: Case) -> bool:
    """Returns whether a result has a lower precision than its workload, in values or weights."""
    definition = case.result.definition
    if not (definition.precision or definition.data_type):
        return False
    return case.data_type != (definition.data_type or definition.workload.data_type)


def panels(cases: Iterable[Case], *, threshold: float = NOISE_THRESHOLD) -> list[Panel]:
    """Returns a panel for each model or operator with recipes."""
    places: defaultdict[Hashable, list[Case]] = defaultdict(list)
    for case in cases:
        places[case.workload, case.device, case.machine, case.quantity].append(case)
    groups: defaultdict[tuple[str, ...], list[Trade]] = defaultdict(list)
    for group in places.values():
        family = Family(group, threshold=threshold)
        for case in filter(is_recipe, group):
            key = (_name(case), case.device, case.machine, case.quantity)
            groups[key].append(_trade(case, group, family))
    return [_panel(key, trades, threshold) for key, trades in groups.items()]


def fronts(items: Iterable[Trade | Mean]) -> dict[str, list[Trade | Mean]]:
    """Returns the Pareto frontier of each stack: recipes not beaten in both speed and signal.

    There is no frontier across stacks, because each speed-up is relative to its own stack.

    Args:
      items: recipes on one shape, or means; those without a speed-up are ignored.

    Returns:
      For each stack, recipes with decreasing signal and increasing speed.
    """
    stacks: defaultdict[str, list[Trade | Mean]] = defaultdict(list)
    for item in items:
        if item.speedup is not None:
            stacks[item.stack].append(item)
    return {stack: _front(found) for stack, found in stacks.items()}


def _front(items: Sequence[Trade | Mean]) -> list[Trade | Mean]:
    def place(item: Trade | Mean) -> tuple[float, float]:
        return (item.sqnr_db or 0.0, item.speedup.estimate if item.speedup else 0.0)

    found: list[Trade | Mean] = []
    for item in sorted(items, key=place, reverse=True):
        if not found or place(item)[1] > place(found[-1])[1]:
            found.append(item)
    return found


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
        speedup=speedup(ratio) if ratio else None,
        sqnr_db=noise if ratio else None,
    )


def _own_stack(case: Case, group: Sequence[Case]) -> tuple[str, Case | None]:
    """Returns the name and the result of the same stack without the recipe.

    A recipe is an option of a compiler. If a separate compiler implements it, such as LiteRT's
    `dynamic-range`, the stack is the only one of the backend that keeps the data type.
    """
    definition = case.result.definition
    others = [
        other for other in group if not is_recipe(other) and _stack_of(other) == _stack_of(case)
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


def _panel(key: tuple[str, ...], trades: Sequence[Trade], threshold: float) -> Panel:
    name, device, machine, quantity = key
    return Panel(
        name=name,
        device=device,
        machine=machine,
        quantity=quantity,
        trades=trades,
        means=_means(trades, threshold),
    )


def _means(trades: Sequence[Trade], threshold: float) -> list[Mean]:
    recipes: defaultdict[tuple[str, str], dict[str, Trade]] = defaultdict(dict)
    for trade in trades:
        if trade.speedup is not None:
            recipes[trade.recipe, trade.stack][trade.case.workload] = trade
    shared = set.intersection(*map(set, recipes.values())) if recipes else set()
    if len(shared) < 2:
        return []
    found = []
    for (recipe, stack), by_shape in recipes.items():
        kept = [by_shape[shape] for shape in sorted(shared)]
        ratios: list[list[LogRatio]] = [
            [trade.comparison.log_ratio]
            for trade in kept
            if trade.comparison and trade.comparison.log_ratio
        ]
        ratio = mean_ratio(ratios)
        outcome, _ = verdict(ratio, threshold=threshold)
        found.append(
            Mean(
                recipe=recipe,
                stack=stack,
                ratio=ratio,
                speedup=speedup(ratio),
                verdict=outcome,
                sqnr_db=statistics.median(trade.sqnr_db or 0.0 for trade in kept),
                shapes=len(kept),
            )
        )
    return found
