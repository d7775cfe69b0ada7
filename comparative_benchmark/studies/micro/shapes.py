"""Shapes of matrix products: named ones, and those that a model runs.

A shape is [m, k] times [k, n]; names are from torchao's benchmarks. Shapes named after language
models are the matrix products of one layer for 4 x 4096 tokens, with the published widths:
queries, keys and values combined; attention output; gate and up combined; and down. `llama` is
Llama 2 70B on one of eight GPUs, as in torchao. DeepSeek compresses keys and values, so its first
shape has only queries.
"""

import itertools
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence

import attrs

from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.settings import RunSettings, call_once
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Result, Status
from openxla.benchmark import devices
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.comparative_suite.operator_cases import model_name
from openxla.benchmark.def_types import BenchmarkCase, ModelFrameworkType
from openxla.benchmark.text import choices
from openxla.benchmark.workloads import workload_of

TOKENS = 4 * 4096
# Largest power of two; a product of 2**16 cubed takes 563 Tflop.
MOST_POWER = 16
CUSTOM = "custom"

_PRODUCTS = "comparative_benchmark.pt_inductor.reference:matrix_products"


@attrs.frozen(order=True)
class Shape:
    """A shape; `label` is its position in a model, or empty."""

    m: int
    k: int
    n: int
    label: str = attrs.field(default="", eq=False, order=False)

    def __str__(self) -> str:
        return f"{self.m}x{self.k}x{self.n}"


@attrs.frozen(kw_only=True)
class PowersOfTwo:
    """Shapes from a range of powers of two.

    Attributes:
      lowest, highest: default range of powers.
      square: m, k and n are equal.
      ascending: only shapes with m <= k <= n.
      between: also include sizes half-way between two powers, from 2 on.
    """

    lowest: int
    highest: int
    square: bool = False
    ascending: bool = False
    between: bool = False

    def shapes(self, lowest: int, highest: int) -> list[Shape]:
        """Returns the shapes for powers from `lowest` to `highest`, inclusive."""
        sizes = [
            2**power + half
            for power in range(lowest, highest + 1)
            for half in ((0, 2 ** (power - 1)) if self.between and power else (0,))
        ]
        if self.square:
            return [Shape(size, size, size) for size in sizes]
        if self.ascending:
            return [Shape(*sides) for sides in itertools.combinations_with_replacement(sizes, 3)]
        return [Shape(*sides) for sides in itertools.product(sizes, repeat=3)]


POWERS: Mapping[str, PowersOfTwo] = {
    "pow2": PowersOfTwo(lowest=10, highest=14, square=True),
    "pow2_extended": PowersOfTwo(lowest=10, highest=14, square=True, between=True),
    "small_sweep": PowersOfTwo(lowest=10, highest=14, ascending=True),
    "sweep": PowersOfTwo(lowest=8, highest=15),
}


def _layer(*sizes: tuple[int, int]) -> list[Shape]:
    names = ("attn.wqkv", "attn.w0", "ffn.w13", "ffn.w2")
    return [Shape(TOKENS, *size, name) for name, size in zip(names, sizes, strict=True)]


LAYERS: Mapping[str, Sequence[Shape]] = {
    "llama": _layer((8192, 1280), (1024, 8192), (8192, 7168), (3584, 8192)),
    "llama4": [
        *_layer((5120, 7168), (5120, 5120), (5120, 32768), (16384, 5120)),
        Shape(TOKENS, 5120, 16384, "moe.w13"),
        Shape(TOKENS, 8192, 5120, "moe.w2"),
    ],
    "deepseek_v3_236b": _layer((5120, 24576), (16384, 5120), (5120, 24576), (12288, 5120)),
    "deepseek_v3_671b": _layer((7168, 24576), (16384, 7168), (7168, 36864), (18432, 7168)),
    "qwen3_32b": _layer((5120, 10240), (8192, 5120), (5120, 51200), (25600, 5120)),
    "gemma3_27b": _layer((5376, 8192), (4096, 5376), (5376, 43008), (21504, 5376)),
}
NAMES = (CUSTOM, *LAYERS, *POWERS)


def named(name: str, *, lowest: int | None = None, highest: int | None = None) -> Sequence[Shape]:
    """Returns the shapes in a named set.

    Args:
      name: one of `NAMES`, except `custom`.
      lowest: smallest power of two; applies only to `POWERS`.
      highest: largest power; shapes of a layer that exceed it in any dimension are dropped.

    Raises:
      UsageError: the name is unknown, or the powers are not an ascending range.
    """
    if name in POWERS:
        powers = POWERS[name]
        last = powers.highest if highest is None else highest
        # If the limit is below the default range, use it and the two powers before it.
        usual = powers.lowest if powers.lowest <= last else max(last - 2, 0)
        first = usual if lowest is None else lowest
        if not 0 <= first <= last <= MOST_POWER:
            raise UsageError(
                f"{name}: invalid powers {first} to {last}; expected an ascending range between "
                f"0 and {MOST_POWER}"
            )
        return powers.shapes(first, last)
    if name in LAYERS:
        most = 2 ** (MOST_POWER if highest is None else highest)
        return [shape for shape in LAYERS[name] if max(shape.m, shape.k, shape.n) <= most]
    raise UsageError(f"unknown shape set {name!r}; {choices(name, NAMES)}")


def written(text: str) -> Shape:
    """Parses a shape such as `64x128x256`.

    Raises:
      UsageError: the text is not a shape.
    """
    if not (match := re.fullmatch(r"(\d+)x(\d+)x(\d+)", text.strip().lower(), re.ASCII)):
        raise UsageError(f"invalid shape {text!r}; expected three numbers MxKxN, e.g. 64x128x256")
    return of(*map(int, match.groups()))


def of(*sizes: object) -> Shape:
    """Returns the shape with the given sizes.

    Raises:
      UsageError: there are not three sizes, or one is not an integer from 1 to 2**16.
    """
    if len(sizes) != len("mkn"):
        raise UsageError(f"expected three numbers in a shape (m, k, n), got {len(sizes)}")
    for letter, size in zip("mkn", sizes):
        whole = isinstance(size, int) and not isinstance(size, bool)
        if not whole or not 1 <= size <= 2**MOST_POWER:  # type: ignore[operator]  # checked above
            raise UsageError(f"invalid {letter} in shape: {size!r}; expected 1 to {2**MOST_POWER}")
    return Shape(*sizes)  # type: ignore[arg-type]  # checked above


@attrs.frozen(kw_only=True)
class Products:
    """Matrix products of a workload.

    Attributes:
      cases: cases of the workload, in each framework.
      counts: number of calls of each product.
    """

    cases: tuple[BenchmarkCase, ...]
    counts: Mapping[Shape, int]

    @property
    def data_type(self) -> str:
        """Data type of the workload."""
        return self.cases[0].data_type or "fp32"


def products_of(name: str) -> Products:
    """Returns the matrix products of the workload of a PyTorch case.

    Args:
      name: regular expression for the whole name of the case.

    Raises:
      UsageError: the name does not match exactly one workload with a PyTorch case, or its products
        cannot be counted.
    """
    every = catalog.all_benchmarks()
    try:
        chosen = catalog.select(every, name=name)
    except re.error as error:
        raise UsageError(f"--from-model {name!r} is not a regular expression: {error}") from error
    digests = {workload_of(case).digest for case in chosen}
    if len(digests) != 1:
        raise UsageError(f"--from-model {name!r} matches {len(digests)} workloads; expected one")
    cases = tuple(case for case in every if workload_of(case).digest in digests)
    pytorch = [c for c in cases if c.model.model_impl.framework_type is ModelFrameworkType.PYTORCH]
    if not pytorch:
        raise UsageError(f"--from-model {name!r} has no PyTorch case to read shapes from")
    shapes = {Shape(m, k, n): count for m, k, n, count in _counted(pytorch[0])}
    if not shapes:
        raise UsageError(f"--from-model {name!r} contains no matrix products")
    return Products(cases=cases, counts=shapes)


def _counted(case: BenchmarkCase) -> list[list[int]]:
    arguments = {
        "module_path": case.model.model_impl.module_path,
        "parameters": dict(case.model.model_parameters),
    }
    try:
        settings = RunSettings(device=devices.HOST_CPU)
        return call_once(settings, _PRODUCTS, arguments, list[list[int]])
    except SessionEnded as ended:
        raise UsageError(
            f"cannot count the matrix products in {case.model.name}: {ended.reason}"
        ) from ended


def shares_of_latency(calls: Products, operator: str, results: Sequence[Result]) -> Iterator[str]:
    """Yields for each competitor the share of the model's latency spent in its products.

    Each product is measured alone, with operands still in the caches. In the model, other operators
    use the caches, and a compiler may fuse products with others. So a share above 1 is possible.
    """
    times = {
        (Case(result=result).competitor, result.definition.model): result.measured.latencies_ms
        for result in results
        if result.status is Status.OK
    }
    medians = {place: statistics.median(samples) for place, samples in times.items() if samples}
    for case in calls.cases:
        framework = case.model.model_impl.framework_type
        names = {
            shape: model_name(operator, calls.data_type, framework, shape) for shape in calls.counts
        }
        for competitor, model in list(medians):
            parts = [medians.get((competitor, name)) for name in names.values()]
            if model != case.model.name or None in parts:
                continue
            total = sum(
                count * medians[competitor, names[shape]] for shape, count in calls.counts.items()
            )
            yield (
                f"{competitor} ({framework.value}): {sum(calls.counts.values())} matrix products "
                f"take {total:.3g} ms on their own, {total / medians[competitor, model]:.0%} of "
                f"the {medians[competitor, model]:.3g} ms for {model}"
            )
