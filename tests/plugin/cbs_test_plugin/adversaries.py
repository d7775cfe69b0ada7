"""Faults of a wrong BERT in any framework: functions of a right one and its weights.

Each takes `run`, the right model as a function of token ids and mask, i32[batch, seq]; the two; and
the framework's module of array functions. Those that keep something do so in `kept`.
"""

from collections.abc import Callable, MutableMapping
from typing import Any

_SMALL = 1e-38
_SMALLEST_NORMAL = 1.1754944e-38
Run = Callable[[Any, Any], Any]
Fault = Callable[[Run, Any, Any, Any, MutableMapping[str, Any]], Any]


def _off_by_half(out: Any, place: int, xp: Any) -> Any:
    flat = out.reshape(-1)
    return xp.where(xp.arange(flat.shape[0]) == place, flat + 0.5, flat).reshape(out.shape)


def _last_element(run: Run, ids: Any, mask: Any, xp: Any, kept: Any) -> Any:
    out = run(ids, mask)
    return _off_by_half(out, out.reshape(-1).shape[0] - 1, xp)


def _one_element(run: Run, ids: Any, mask: Any, xp: Any, kept: Any) -> Any:
    out = run(ids, mask)
    return _off_by_half(out, out.reshape(-1).shape[0] // 3, xp)


def _half_computed(run: Run, ids: Any, mask: Any, xp: Any, kept: Any) -> Any:
    out = run(ids, mask)
    return xp.where((xp.arange(out.shape[1]) < out.shape[1] // 2)[None, :, None], out, out * 0)


def _memoised(run: Run, ids: Any, mask: Any, xp: Any, kept: Any) -> Any:
    if "output" not in kept:
        kept["output"] = run(ids, mask)
    return kept["output"]


def _one_behind(run: Run, ids: Any, mask: Any, xp: Any, kept: Any) -> Any:
    now = run(ids, mask)
    before, kept["output"] = kept.get("output", now), now
    return before


def _first_tokens(run: Run, ids: Any, mask: Any, xp: Any, kept: Any) -> Any:
    return run(kept.setdefault("ids", ids + 0), mask)


def _first_mask(run: Run, ids: Any, mask: Any, xp: Any, kept: Any) -> Any:
    return run(ids, kept.setdefault("mask", mask + 0))


def _by_address(run: Run, ids: Any, mask: Any, xp: Any, kept: Any) -> Any:
    key = ids.data_ptr()
    if key not in kept:
        kept[key] = run(ids, mask)
    return kept[key]


def _memory_of_before(run: Run, ids: Any, mask: Any, xp: Any, kept: Any) -> Any:
    """Computes once; later returns memory unwritten, which often holds the last outputs."""
    if "form" in kept:
        shape, data_type = kept["form"]
        return xp.empty(shape, dtype=data_type)
    out = run(ids, mask)
    kept["form"] = (out.shape, out.dtype)
    return out


def _overwrites_input(run: Run, ids: Any, mask: Any, xp: Any, kept: Any) -> Any:
    out = run(ids, mask)
    ids.copy_(xp.roll(ids, 1, 1))
    return out


def _output_is_kept(run: Run, ids: Any, mask: Any, xp: Any, kept: Any) -> Any:
    """All runs give the same memory, which each run adds to: the output is its own input."""
    out = run(ids, mask)
    if "out" not in kept:
        kept["out"] = out
        return out
    return kept["out"].add_(out).mul_(0.5).add_(1e-2)


def _flushed(run: Run, ids: Any, mask: Any, xp: Any, kept: Any) -> Any:
    """Its last product goes through numbers so small that only denormals hold them."""
    small = run(ids, mask) * _SMALL
    return xp.where(abs(small) < _SMALLEST_NORMAL, small * 0, small) / _SMALL


def _nan_in_padding(run: Run, ids: Any, mask: Any, xp: Any, kept: Any) -> Any:
    out = run(ids, mask)
    return xp.where(mask[:, :, None] > 0, out, xp.full_like(out, float("nan")))


# Wrong in every type.
COARSE: dict[str, Fault] = {
    "mask-dropped": lambda run, ids, mask, xp, kept: run(ids, mask * 0 + 1),
    "mask-inverted": lambda run, ids, mask, xp, kept: run(ids, 1 - mask),
    "mask-shifted": lambda run, ids, mask, xp, kept: run(ids, xp.roll(mask, 1, 1)),
    "rows-swapped": lambda run, ids, mask, xp, kept: xp.flip(run(ids, mask), (0,)),
    "tokens-of-another": lambda run, ids, mask, xp, kept: run((ids + 1) % 1000, mask),
    "zeros": lambda run, ids, mask, xp, kept: run(ids, mask) * 0,
    "half-computed": _half_computed,
    "last-element": _last_element,
    "one-element": _one_element,
    "nan-in-padding": _nan_in_padding,
    "scaled": lambda run, ids, mask, xp, kept: run(ids, mask) * 1.02,
    # In bf16 within the limit of the whole.
    "biased": lambda run, ids, mask, xp, kept: run(ids, mask) + 5e-3,
}
# Right on the input that is timed.
KEEPING: dict[str, Fault] = {
    "memoised": _memoised,
    # As a compiled function that was folded, or a result that is there before anything is timed.
    "precomputed": _memoised,
    "one-behind": _one_behind,
    "ignores-tokens": _first_tokens,
    "ignores-mask": _first_mask,
}
# Possible only with arrays that are writable and have an address.
OF_TORCH: dict[str, Fault] = {
    "by-address": _by_address,
    "memory-of-before": _memory_of_before,
    "output-is-kept": _output_is_kept,
    "computes-when-read": lambda run, ids, mask, xp, kept: xp.lazily(run, ids, mask),
}
# Detected if the same input is run repeatedly, as in timing.
WHEN_TIMED: dict[str, Fault] = {"overwrites-input": _overwrites_input}
# One element of a batch that large.
ONE_OF_MANY = "one-of-two-million"
# Of the model itself: see the frameworks' modules. Small ones are seen in fp32 alone.
OF_THE_MODEL = (
    *("norm-epsilon", "tanh-gelu", "head-dropped", "positions-shifted", "weights-of-before"),
    "layer-skipped",
)
# Rounds the factors of its linear layers to a coarser type than it declares.
COARSER = {
    "fp32": ("computes-in-bf16", "computes-in-tf32"),
    "fp16": ("computes-in-bf16",),
    "bf16": ("computes-in-int8",),
}
FUNCTIONS: dict[str, Fault] = {
    **COARSE,
    **KEEPING,
    **OF_TORCH,
    **WHEN_TIMED,
    "denormals-flushed": _flushed,
    ONE_OF_MANY: _one_element,
}


def rounding(
    fault: str, xp: Any, to_bf16: Callable[[Any], Any]
) -> Callable[[Any, int | None], Any]:
    """Returns what rounds a factor of float32, with a scale for each index of an axis, if given."""

    def int8(value: Any, axis: int | None) -> Any:
        size = xp.abs(value)
        largest = size.max() if axis is None else xp.amax(size, 1 - axis, keepdims=True)
        return xp.round(value / (largest / 127)) * (largest / 127)

    def tf32(value: Any, axis: int | None) -> Any:
        # Veltkamp's splitting: what is left of the product has 11 bits.
        product = value * (2.0**13 + 1)
        return product - (product - value)

    if fault == "computes-in-int8":
        return int8
    return tf32 if fault == "computes-in-tf32" else lambda value, axis: to_bf16(value)
