"""Named shapes: [m, k] times [k, n], with the names used in torchao's benchmarks.

Shapes named after language models are the matrix products of one layer for 4 x 4096 tokens, with
the published widths: queries, keys and values combined; attention output; gate and up combined; and
down. `llama` is Llama 2 70B on one of eight GPUs, as in torchao. DeepSeek compresses keys and
values, so its first shape has only queries.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

import attrs

from comparative_benchmark.errors import UsageError
from openxla.benchmark.text import choices

TOKENS = 4 * 4096
# Largest power of two; a product of 2**16 cubed takes 563 Tflop.
MOST_POWER = 16
CUSTOM = "custom"


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
      between: also include sizes half-way between two powers.
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
            for half in ((0, 2 ** (power - 1)) if self.between else (0,))
        ]
        if self.square:
            return [Shape(size, size, size) for size in sizes]
        if self.ascending:
            return [Shape(*found) for found in itertools.combinations_with_replacement(sizes, 3)]
        return [Shape(*found) for found in itertools.product(sizes, repeat=3)]


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
                f"{name}: powers from {first} to {last}; expected an ascending range in "
                f"0 to {MOST_POWER}"
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
        raise UsageError(f"shape {text!r} is not three numbers (m, k, n), e.g. 64x128x256")
    return of(*map(int, match.groups()))


def of(*sizes: object) -> Shape:
    """Returns the shape with the given sizes.

    Raises:
      UsageError: there are not three sizes, or one is not an integer from 1 to 2**16.
    """
    if len(sizes) != len("mkn"):
        raise UsageError(f"a shape has three numbers, m, k and n; got {len(sizes)}")
    for letter, size in zip("mkn", sizes):
        whole = isinstance(size, int) and not isinstance(size, bool)
        if not whole or not 1 <= size <= 2**MOST_POWER:  # type: ignore[operator]  # checked above
            raise UsageError(f"{letter} of a shape is {size!r}; expected 1 to {2**MOST_POWER}")
    return Shape(*sizes)  # type: ignore[arg-type]  # checked above


def distinct(shapes: Iterable[Shape]) -> list[Shape]:
    """Returns the shapes without duplicates, in order."""
    return list(dict.fromkeys(shapes))
