"""Explains why one competitor is slower than another, from profiles of both."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import attrs

from comparative_benchmark.analysis.roofline.ceilings import Ceilings, share_of_roof
from comparative_benchmark.backends.operator_profile import Operator, OperatorProfile
from comparative_benchmark.results.comparing.roofs import peak_type
from comparative_benchmark.results.record import Result

PRODUCTS = "matrix products"
RUNTIME = "runtime"
OTHER = "other"

# Name patterns by kind. The first match counts, so kinds that dominate the time of fused kernels
# come first.
_PARTS = {
    RUNTIME: (r"^runtime\b",),
    "attention": ("attention", "flash", "sdpa"),
    "convolutions": ("conv(?!ert)",),
    PRODUCTS: (
        *("matmul", "gemm", r"\bb?mm\b", r"\bdot\b", "addmm", "linear", "mmt4d", "contract"),
        *("einsum", "fully.?connected", "inner.?product"),
    ),
    "normalisation": ("(layer|batch|group|rms|instance).?norm", r"\bmvn\b", "normaliz"),
    "softmax": ("softmax",),
    "embeddings and gathers": (
        *("embedding", "gather", "index.?select", "scatter", r"\bindex\b", r"\btake\b"),
    ),
    # Global pooling is a mean; stacks call it either.
    "pooling": (r"^(?!.*global).*pool",),
    "reductions": (
        *("reduc", r"\bsum\b", r"\bmean\b", r"\bmax\b", r"\bmin\b", "arg.?max", "cum.?sum"),
        *(r"\bvar\b", "top.?k", "sort", "global.*pool"),
    ),
    "elementwise": (
        *("gelu", "relu", "silu", "tanh", "erf", "sigmoid", "exponential", r"\bexp\b", "sqrt"),
        *("logistic", "subgraph", r"\bpow", "add", r"\bsub", "mul", "div", "neg", "select"),
        *("where", "compare", "elementwise", "eltwise", "activation", r"\blog\b", "clamp"),
        *(r"\bfused\b", r"\babs\b", "maximum", "minimum", "square"),
    ),
    "copies and layouts": (
        *("copy", "transpose", "permute", "reshape", "reorder", "concat", r"\bcat\b", "slice"),
        *("pack", r"\bpad", "convert", "cast", "contiguous", "clone", r"\bto\b", "view"),
        *("expand", "broadcast", "empty", "fill", "split", "memcpy", "memset", "strided"),
        *("squeeze", r"\bt\b", "resize", "detach", "identity", "stack"),
    ),
}
_KINDS = {kind: re.compile("|".join(parts), re.IGNORECASE) for kind, parts in _PARTS.items()}


def kind_of(operator: Operator) -> str:
    """Returns the kind of an operator, based on its operation, else on its name."""
    for text in filter(None, (operator.does, operator.name)):
        # Split names into words, because `_` counts as a letter.
        words = f"{text} {text.replace('_', ' ')}"
        for kind, pattern in _KINDS.items():
            if pattern.search(words):
                return kind
    return OTHER


# Time outside operators: calls, gaps, waiting, and overhead of the profiler.
BETWEEN = "between operators"
_MOST_OPERATORS = 5


@attrs.frozen(kw_only=True)
class Shown:
    """An operator as displayed; times are per iteration.

    Attributes:
      of_roof: share of the roof, if flops, bytes and the machine's ceilings are known.
    """

    name: str
    does: str
    calls: float
    ms: float | None
    of_roof: float | None


@attrs.frozen(kw_only=True)
class Part:
    """Time that a competitor spends on one kind of operators.

    Attributes:
      operators: the longest operators, in descending order; not all of them.
      of_roof: share of the roof of the operators whose cost is known.
      lowest_ms, highest_ms: range over all profiles.
    """

    ms: float
    calls: float
    operators: tuple[Shown, ...] = ()
    of_roof: float | None = None
    lowest_ms: float
    highest_ms: float


@attrs.frozen(kw_only=True)
class Row:
    """A kind of operators in both competitors.

    Attributes:
      lost_ms: additional time of the slower competitor; None if either time is unknown.
    """

    kind: str
    slow: Part | None
    fast: Part | None
    lost_ms: float | None

    @property
    def is_beyond_spread(self) -> bool:
        """Whether the slower competitor takes longer in each profile than the faster one in any."""
        fastest = self.slow.lowest_ms if self.slow else 0.0
        return fastest > (self.fast.highest_ms if self.fast else 0.0)


@attrs.frozen(kw_only=True)
class Side:
    """One of the two competitors.

    Attributes:
      latency_ms: measured latency, never from a profile.
      told_ms: total time of its operators in the profile; None if unknown.
    """

    competitor: str
    framework: str
    latency_ms: float
    told_ms: float | None
    profile: OperatorProfile

    @property
    def cover(self) -> float | None:
        """Returns the fraction of the latency that the profile's operators account for."""
        return None if self.told_ms is None else self.told_ms / self.latency_ms


@attrs.frozen(kw_only=True)
class Explanation:
    """Why one competitor is slower; rows in descending order of lost time.

    The `lost_ms` of all rows add up to the difference of the latencies.
    """

    workload: str
    slow: Side
    fast: Side
    rows: tuple[Row, ...]

    @property
    def lost_ms(self) -> float:
        """Returns the difference of the latencies."""
        return self.slow.latency_ms - self.fast.latency_ms


def explain(
    one: tuple[Result, OperatorProfile],
    other: tuple[Result, OperatorProfile],
    ceilings: Ceilings | None = None,
) -> Explanation:
    """Explains why the slower of two results is slower.

    Operators of two stacks correspond only by what they do, so they are compared by kind.

    Args:
      one: a measured result with its profile.
      other: another result of the same workload with its profile.
      ceilings: ceilings of the device; None if unknown.
    """
    fast, slow = sorted((one, other), key=lambda item: _latency(item[0]))
    parts = [_parts(*item, ceilings) for item in (slow, fast)]
    times_known = all(item[1].us is not None for item in (slow, fast))
    kinds = dict.fromkeys([*parts[0], *parts[1]])
    rows = []
    for kind in kinds:
        of_slow, of_fast = parts[0].get(kind), parts[1].get(kind)
        lost = (of_slow.ms if of_slow else 0.0) - (of_fast.ms if of_fast else 0.0)
        rows.append(
            Row(kind=kind, slow=of_slow, fast=of_fast, lost_ms=lost if times_known else None)
        )
    rows.sort(key=lambda row: -(row.lost_ms or 0.0))
    return Explanation(
        workload=slow[0].definition.workload.label,
        slow=_side(*slow),
        fast=_side(*fast),
        rows=tuple(rows),
    )


def _latency(result: Result) -> float:
    median_ms = result.measured.median_ms
    assert median_ms is not None
    return median_ms


def _side(result: Result, profile: OperatorProfile) -> Side:
    return Side(
        competitor=result.definition.competitor,
        framework=result.definition.framework_name,
        latency_ms=_latency(result),
        told_ms=None if profile.us is None else profile.us / 1e3,
        profile=profile,
    )


def _parts(result: Result, profile: OperatorProfile, ceilings: Ceilings | None) -> dict[str, Part]:
    by_kind = _by_kind(profile.operators)
    every = [by_kind, *map(_by_kind, profile.repeats)]
    data_type = peak_type(result)
    parts = {
        kind: Part(
            ms=_ms(operators),
            lowest_ms=min(_ms(kinds.get(kind, ())) for kinds in every),
            highest_ms=max(_ms(kinds.get(kind, ())) for kinds in every),
            calls=sum(operator.calls for operator in operators),
            operators=tuple(
                Shown(
                    name=operator.name,
                    does=operator.does,
                    calls=operator.calls,
                    ms=None if operator.us is None else operator.us / 1e3,
                    of_roof=_share([operator], ceilings, data_type),
                )
                for operator in operators[:_MOST_OPERATORS]
            ),
            of_roof=_share(operators, ceilings, data_type),
        )
        for kind, operators in by_kind.items()
    }
    if profile.us is not None:
        latency_ms = _latency(result)
        rest = [latency_ms - _ms(each) for each in (profile.operators, *profile.repeats)]
        parts[BETWEEN] = Part(ms=rest[0], calls=0.0, lowest_ms=min(rest), highest_ms=max(rest))
    return parts


def _by_kind(operators: Iterable[Operator]) -> dict[str, list[Operator]]:
    kinds: defaultdict[str, list[Operator]] = defaultdict(list)
    for operator in operators:
        kinds[kind_of(operator)].append(operator)
    return kinds


def _ms(operators: Iterable[Operator]) -> float:
    return sum(operator.us or 0.0 for operator in operators) / 1e3


def _share(
    operators: Sequence[Operator], ceilings: Ceilings | None, data_type: str
) -> float | None:
    """Returns the share of the roof of the operators whose cost and time are known."""
    known = [operator for operator in operators if operator.us and operator.flops]
    if ceilings is None or not known:
        return None
    flops = sum(operator.flops or 0.0 for operator in known)
    moved = sum(operator.bytes or 0.0 for operator in known)
    return share_of_roof(
        flops, moved, sum(operator.us or 0.0 for operator in known) / 1e3, ceilings, data_type
    )
