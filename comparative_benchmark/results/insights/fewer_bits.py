"""What fewer bits give and cost: recipes against their own stack, by the signal that they keep."""

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
    """A recipe on one workload: the speed that it gives for the signal that it costs.

    Attributes:
      stack: the same backend, compiler and framework without the recipe, as `jax_xla:xla (jax)`.
      own: the result of that stack; None where it was not measured.
      comparison: with it; None without one.
      speedup, sqnr_db: None unless both are known: of a right answer in fewer bits.
    """

    case: Case
    stack: str
    own: Case | None
    comparison: Comparison | None
    speedup: Speedup | None
    sqnr_db: float | None

    @property
    def recipe(self) -> str:
        """Its name with its parameters; where a compiler stands for it, what it computes in."""
        return self.case.data_type

    @property
    def why(self) -> str:
        """Why it has no place in a picture; empty if it has one."""
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
      recipe: with its parameters.
      ratio: geometric mean of the times over those of the stack; `speedup` is its inverse.
      sqnr_db: median.
      shapes: how many.
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
    """Recipes on one model, or on one operator in one type over shapes; on one machine.

    Attributes:
      trades: of all shapes.
      means: over the shapes that all recipes have in common; empty where there is one shape, or
        none in common.
    """

    name: str
    device: str
    machine: str
    quantity: str
    trades: Sequence[Trade]
    means: Sequence[Mean]


def is_recipe(case: Case) -> bool:
    """Tells whether a result is of fewer bits, or fewer weights, than its workload has."""
    definition = case.result.definition
    if not (definition.precision or definition.data_type):
        return False
    return case.data_type != (definition.data_type or definition.workload.data_type)


def panels(cases: Iterable[Case], *, threshold: float = NOISE_THRESHOLD) -> list[Panel]:
    """Returns a panel for each model or operator that results with recipes are of."""
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
    """Returns by stack its frontier: what no other of its recipes beats in speed and in signal.

    Across stacks there is none: each speed is over that of its own stack.

    Args:
      items: of one shape, or means; those without a speed-up are passed over.

    Returns:
      By falling signal and rising speed.
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

    A recipe is an option of a compiler. Where a compiler of its own stands for it, as LiteRT's
    `dynamic-range` does, its stack is the backend's only one that keeps the type.
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
