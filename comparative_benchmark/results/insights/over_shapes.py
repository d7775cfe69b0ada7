"""Speed-ups of operators over shapes, arranged for plots."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import attrs

from comparative_benchmark.analysis.stats.analysis import Interval
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.comparison import Comparison
from comparative_benchmark.results.record import Result
from openxla.benchmark.operators import guide_functions
from openxla.benchmark.operators.architecture import OperatorArchitecture

_LETTERS = "mkn"


@attrs.frozen
class Speedup:
    """Speed relative to a baseline, with the interval that the verdict is based on.

    Attributes:
      low, high: 0 and infinity if the samples support no limit.
    """

    estimate: float
    low: float
    high: float


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
    speedup: Speedup


@attrs.frozen(kw_only=True)
class Panel:
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


def speedup(ratio: Interval) -> Speedup:
    """Returns the inverse of a ratio of times, with inverted limits."""
    low = 1 / ratio.high if ratio.high else 0.0
    return Speedup(1 / ratio.estimate, low, 1 / ratio.low if ratio.low else math.inf)


def sizes_of(result: Result) -> dict[str, int] | None:
    """Returns m, k and n of an operator's result; None for other models."""
    definition = result.definition
    name, _, _ = definition.workload.architecture.partition("/")
    found = {letter: definition.model_parameters.get(letter) for letter in _LETTERS}
    is_one = name in (OperatorArchitecture.name, guide_functions.IMPLEMENTATION)
    if not is_one or "model_name" not in definition.model_parameters:
        return None
    sizes = {letter: size for letter, size in found.items() if isinstance(size, int) and size > 0}
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


def panels(judged: Iterable[tuple[Case, Comparison | None]]) -> list[Panel]:
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
    return [(at, math.exp(math.fsum(found) / len(found))) for at, found in sorted(logs.items())]


def _panel(key: tuple[str, ...], group: Sequence[tuple[Case, Comparison | None]]) -> Panel:
    operator, data_type, device, machine, quantity = key
    axis = _axis([sizes_of(case.result) or {} for case, _ in group])
    series: defaultdict[str, list[Point]] = defaultdict(list)
    left_out = []
    for case, comparison in group:
        if comparison and comparison.ratio:
            at = math.prod((sizes_of(case.result) or {})[letter] for letter in axis)
            found = Point(case, at, comparison, speedup(comparison.ratio))
            series[f"{case.competitor} ({case.framework})"].append(found)
        elif comparison or case.result.reason:
            left_out.append(case)
    return Panel(
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
