"""In a worker: ONNX operators that the reference evaluator lacks or computes wrongly.

Each follows https://github.com/onnx/onnx/blob/main/docs/Operators.md, or Changelog.md there for
older versions. The evaluator of onnx 1.23 has these faults. Operators compute in the type of their
operands, so the same code gives the float64 truth and the plain run.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun, RuntimeContextError
from onnx.reference.ops import load_op, op_loop, op_roi_align

from openxla.benchmark.user_models.inputs import Array
from openxla.benchmark.user_models.onnx.onnx_recurrent import gru, lstm, rnn

_Attributes = Mapping[str, Any]
# Takes the attributes, the opset's version, the number of outputs, and the operands.
_Evaluate = Callable[..., tuple[Array, ...]]
_NEWEST = 10**6
# Operand elements that are unfolded for one matrix product at a time.
_LARGEST = 2**25


def operators(opset: int) -> list[type[OpRun]]:
    """Returns the operators of an opset version that replace the evaluator's own."""
    own = [_operator(k, evaluate, opset) for k, a, b, evaluate in _OPERATORS if a <= opset <= b]
    return [*own, Loop, *([RoiAlign] if opset < 16 else [])]


class Loop(op_loop.Loop):
    """Stacks scan outputs along a new axis; the evaluator's own operator joins their rows.

    A loop without a condition runs, which it does not in the evaluator.
    """

    op_domain = ""
    _run_body: Any

    def _run(self, trips: Any, go: Any, *operands: Any, **keywords: Any) -> tuple[Any, ...]:
        body, scanned = self._run_body, []

        def run(*given: Any, **named: Any) -> Any:
            outputs = body(*given, **named)
            scanned.append(outputs[1 + self.N :])
            return outputs

        self._run_body = run
        try:
            go = np.array(True) if go is None else go
            results = super()._run(trips, go, *operands, **keywords)
        finally:
            self._run_body = body
        return (*results[: self.N], *map(np.stack, zip(*scanned)))


class RoiAlign(op_roi_align.RoiAlign):
    """Versions before 16; the evaluator shifts coordinates by half a pixel, as later ones do."""

    op_domain = ""

    def _run(self, *operands: Any, **keywords: Any) -> tuple[Any, ...]:
        keywords["coordinate_transformation_mode"] = "output_half_pixel"
        return tuple(super()._run(*operands, **keywords))


def missing(kinds: Iterable[str], opset: int) -> list[type[OpRun]]:
    """Returns operators that raise when run, for those that the evaluator lacks.

    Otherwise the evaluator would refuse the whole graph when loading it.
    """
    lacking = (kind for kind in set(kinds) if _is_missing(kind, opset))
    return [type(kind, (OpRun,), {"op_domain": "", "_run": _refuse}) for kind in lacking]


@functools.cache
def _is_missing(kind: str, opset: int) -> bool:
    try:
        load_op("", kind, opset, evaluator_cls=ReferenceEvaluator)
    except RuntimeContextError:  # depends on types that are not known yet
        return False
    except Exception:
        return True
    return False


def _refuse(self: Any, *_: Any, **__: Any) -> tuple[Array, ...]:
    raise NotImplementedError(f"ONNX's reference evaluator lacks {self.onnx_node.op_type}")


def is_replaced(kind: str, opset: int) -> bool:
    """Returns whether our own implementation of an operator replaces the evaluator's."""
    return any(kind == name and first <= opset <= last for name, first, last, _ in _OPERATORS)


@functools.cache
def _operator(kind: str, evaluate: _Evaluate, opset: int) -> type[OpRun]:
    def run(self: Any, *operands: Any, **_: Any) -> tuple[Array, ...]:
        node = self.onnx_node
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
        narrow = {v.dtype for v in operands if v is not None and v.dtype.name == "bfloat16"}
        if not narrow:
            return evaluate(attributes, opset, len(node.output), *operands)
        # NumPy has no matrix products in this type.
        wide = [
            v.astype(np.float32) if v is not None and v.dtype in narrow else v for v in operands
        ]
        outputs = evaluate(attributes, opset, len(node.output), *wide)
        (dtype,) = narrow
        return tuple(v.astype(dtype) if v.dtype.kind == "f" else v for v in outputs)

    return type(kind, (OpRun,), {"op_domain": "", "_run": run, "__module__": __name__})


def _number(attributes: _Attributes, name: str, default: float, x: Array) -> Any:
    """Returns an attribute in the type of an array; defaults are float32, like attributes."""
    return x.dtype.type(np.float32(attributes.get(name, default)))


def _batch_normalization(
    attributes: _Attributes,
    _opset: int,
    used: int,
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    var: Array,
) -> tuple[Array, ...]:
    """Versions 7 and 9: trains if several outputs are used; `momentum` alone does not matter."""
    epsilon = _number(attributes, "epsilon", 1e-5, x)
    # In version 7, 0 means a mean for each element of a sample.
    per_channel = attributes.get("spatial", 1) == 1
    shape = (1, -1, *[1] * (x.ndim - 2)) if per_channel else (1, *x.shape[1:])

    def normalized(center: Array, spread: Array) -> Array:
        root = np.sqrt(spread.reshape(shape) + epsilon)
        centered = (x - center.reshape(shape)) / root
        return np.asarray(scale.reshape(shape) * centered + bias.reshape(shape))

    if used < 2:
        return (normalized(mean, var),)
    axes = (0, *range(2, x.ndim)) if per_channel else (0,)
    center, spread = x.mean(axis=axes), x.var(axis=axes)
    keep = _number(attributes, "momentum", 0.9, x)
    running = [
        old * keep + new.reshape(old.shape) * (1 - keep)
        for old, new in ((mean, center), (var, spread))
    ]
    return (normalized(center, spread), *running, center, spread)[:used]


def _rows(attributes: _Attributes, opset: int, x: Array) -> tuple[Array, int]:
    """Returns an array and the axis of its rows; before version 13, later axes are flattened."""
    if opset >= 13:
        return x, attributes.get("axis", -1)
    axis = attributes.get("axis", 1) % max(x.ndim, 1)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), 1


def _softmax(attributes: _Attributes, opset: int, _used: int, x: Array) -> tuple[Array, ...]:
    rows, axis = _rows(attributes, opset, x)
    powers = np.exp(rows - rows.max(axis=axis, keepdims=True, initial=-np.inf))
    return ((powers / powers.sum(axis=axis, keepdims=True)).reshape(x.shape),)


def _log_softmax(attributes: _Attributes, opset: int, _used: int, x: Array) -> tuple[Array, ...]:
    """Any version. Computed directly, because log(softmax) is infinite if softmax underflows."""
    rows, axis = _rows(attributes, opset, x)
    below = rows - rows.max(axis=axis, keepdims=True, initial=-np.inf)
    total = np.exp(below).sum(axis=axis, keepdims=True)
    return ((below - np.log(total)).reshape(x.shape),)


def _hardmax(attributes: _Attributes, opset: int, _used: int, x: Array) -> tuple[Array, ...]:
    rows, axis = _rows(attributes, opset, x)
    ones = np.zeros_like(rows)
    if x.size:
        first = np.expand_dims(rows.argmax(axis=axis), axis)
        np.put_along_axis(ones, first, x.dtype.type(1), axis=axis)
    return (ones.reshape(x.shape),)


def _lrn(attributes: _Attributes, _opset: int, _used: int, x: Array) -> tuple[Array, ...]:
    size = attributes["size"]
    squares, sums = x * x, np.zeros_like(x)
    for channel in range(x.shape[1]):
        first = max(0, channel - (size - 1) // 2)
        sums[:, channel] = squares[:, first : channel + size // 2 + 1].sum(axis=1)
    alpha, beta = _number(attributes, "alpha", 1e-4, x), _number(attributes, "beta", 0.75, x)
    scale = _number(attributes, "bias", 1.0, x) + alpha / x.dtype.type(size) * sums
    return (x / scale**beta,)


def _lp_normalization(
    attributes: _Attributes, _opset: int, _used: int, x: Array
) -> tuple[Array, ...]:
    order, axis = attributes.get("p", 2), attributes.get("axis", -1)
    norm = np.linalg.norm(x, ord=order, axis=axis, keepdims=True)
    return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0),)


def _global_lp_pool(
    attributes: _Attributes, _opset: int, _used: int, x: Array
) -> tuple[Array, ...]:
    power = x.dtype.type(attributes.get("p", 2))
    total = (np.abs(x) ** power).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
    return (total ** (1 / power),)


def _mean_variance_normalization(
    attributes: _Attributes, _opset: int, _used: int, x: Array
) -> tuple[Array, ...]:
    axes = tuple(attributes.get("axes", (0, 2, 3)))
    centered = x - x.mean(axis=axes, keepdims=True)
    # The specification's function adds 1e-9 to the standard deviation, not to the variance.
    return (centered / (x.std(axis=axes, keepdims=True) + x.dtype.type(1e-9)),)


def _one_hot(
    attributes: _Attributes, opset: int, _used: int, indices: Array, depth: Array, values: Array
) -> tuple[Array, ...]:
    """Any version; from version 11, a negative index counts from the end."""
    count, wanted = int(np.reshape(depth, ())), indices.astype(np.int64)
    if opset >= 11:
        wanted = np.where(wanted < 0, wanted + count, wanted)
    is_hot = wanted[..., None] == np.arange(count)
    output = np.where(is_hot, values[1], values[0])
    return (np.moveaxis(output, -1, attributes.get("axis", -1)),)


@attrs.frozen(kw_only=True)
class _Window:
    """The window of a kernel over the spatial axes; one entry per axis.

    Attributes:
      sizes: sizes of the kernel.
      before, after: padding.
      outputs: sizes of the result.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    outputs: tuple[int, ...]

    @classmethod
    def of(cls, attributes: _Attributes, sizes: Sequence[int], taken: Sequence[int]) -> "_Window":
        """Returns the window of a node.

        Args:
          attributes: attributes of the node.
          sizes: sizes of the kernel.
          taken: spatial sizes of the operand.
        """
        count = len(taken)
        strides = tuple(attributes.get("strides") or [1] * count)
        dilations = tuple(attributes.get("dilations") or [1] * count)
        pads = list(attributes.get("pads") or [0] * 2 * count)
        reach = [d * (k - 1) + 1 for d, k in zip(dilations, sizes, strict=True)]
        auto, ceil = attributes.get("auto_pad", "NOTSET"), attributes.get("ceil_mode", 0)
        before, after, outputs = [], [], []
        for i, (length, stride, span) in enumerate(zip(taken, strides, reach, strict=True)):
            low, high = pads[i], pads[count + i]
            if auto.startswith("SAME"):
                total = max((-(-length // stride) - 1) * stride + span - length, 0)
                low = total // 2 if auto == "SAME_UPPER" else total - total // 2
                high = total - low
            elif auto == "VALID":
                low = high = 0
            room = length + low + high - span
            steps = -(-room // stride) if ceil else room // stride
            # A window that would start in the end padding is dropped.
            if ceil and steps * stride >= length + low:
                steps -= 1
            before.append(low)
            after.append(high)
            outputs.append(steps + 1)
        return cls(
            sizes=tuple(sizes),
            strides=strides,
            dilations=dilations,
            before=tuple(before),
            after=tuple(after),
            outputs=tuple(outputs),
        )

    def padded(self, x: Array, fill: Any) -> Array:
        """Returns an array padded as far as the windows reach."""
        widths = [(0, 0), (0, 0)]
        for i, length in enumerate(x.shape[2:]):
            last = (self.outputs[i] - 1) * self.strides[i]
            last += self.dilations[i] * (self.sizes[i] - 1) + 1
            widths.append((self.before[i], max(self.after[i], last - length - self.before[i])))
        return np.pad(x, widths, constant_values=fill)

    def places(self) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
        """Yields each position in the kernel, and the elements of a padded array that it covers."""
        for place in itertools.product(*map(range, self.sizes)):
            starts = [d * k for d, k in zip(self.dilations, place, strict=True)]
            steps = zip(starts, self.strides, self.outputs, strict=True)
            cut = (slice(start, start + s * (n - 1) + 1, s) for start, s, n in steps)
            yield place, (slice(None), slice(None), *cut)


def _max_pool(attributes: _Attributes, _opset: int, used: int, x: Array) -> tuple[Array, ...]:
    """Any version; indices count in the whole array, with spatial axes reversed if requested."""
    window = _Window.of(attributes, attributes["kernel_shape"], x.shape[2:])
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    order: Literal["C", "F"] = "F" if attributes.get("storage_order", 0) else "C"
    spatial = np.reshape(np.arange(math.prod(x.shape[2:])), x.shape[2:], order=order)
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
    places = window.padded(np.broadcast_to(spatial, (1, 1, *spatial.shape)), -1)
    values = window.padded(x, least)
    output = np.full((*x.shape[:2], *window.outputs), least, x.dtype)
    index = np.full(output.shape, -1)
    for _, cut in window.places():
        value, place = values[cut], np.broadcast_to(places[cut], output.shape)
        better = (place >= 0) & ((index < 0) | (value > output))
        output, index = np.where(better, value, output), np.where(better, place, index)
    return (output, index + planes * spatial.size)[:used]


def _average_pool(attributes: _Attributes, _opset: int, _used: int, x: Array) -> tuple[Array, ...]:
    window = _Window.of(attributes, attributes["kernel_shape"], x.shape[2:])
    values, ones = window.padded(x, 0), window.padded(np.ones((1, 1, *x.shape[2:]), x.dtype), 0)
    if attributes.get("count_include_pad", 0):
        ends = map(sum, zip(window.before, x.shape[2:], window.after, strict=True))
        covered: Any = (..., *map(slice, ends))
        ones[covered] = 1
    total = sum(values[cut] for _, cut in window.places())
    count = sum(ones[cut] for _, cut in window.places())
    return ((total / count).astype(x.dtype),)


def _dropout(_: _Attributes, opset: int, used: int, x: Array) -> tuple[Array, ...]:
    """Versions 7 and 10 do not define the mask of an inference; runtimes return zeros."""
    return (x, np.zeros(x.shape, bool if opset >= 10 else x.dtype))[:used]


def _lp_pool(attributes: _Attributes, _opset: int, _used: int, x: Array) -> tuple[Array, ...]:
    window = _Window.of(attributes, attributes["kernel_shape"], x.shape[2:])
    power = x.dtype.type(attributes.get("p", 2))
    values = window.padded(np.abs(x) ** power, 0)
    total = sum(values[cut] for _, cut in window.places())
    return ((total ** (1 / power)).astype(x.dtype),)


def _conv(
    attributes: _Attributes, _opset: int, _used: int, x: Array, w: Array, b: Array | None = None
) -> tuple[Array, ...]:
    """Multiplies kernels by unfolded patches, in blocks that fit the memory limit."""
    groups = attributes.get("group", 1)
    window = _Window.of(attributes, w.shape[2:], x.shape[2:])
    values = window.padded(x, 0)
    kernels = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
    output = np.empty((x.shape[0], w.shape[0], *window.outputs), x.dtype)
    size = math.prod(window.outputs)
    step = max(1, _LARGEST // max(1, x.shape[1] * size))
    for sample in range(x.shape[0]):
        total = np.zeros((groups, w.shape[0] // groups, size), x.dtype)
        places = iter(window.places())
        for start in range(0, kernels.shape[-1], step):
            cuts = [cut[1:] for _, cut in itertools.islice(places, step)]
            below = np.stack([values[sample][cut] for cut in cuts], axis=1)
            below = below.reshape(groups, w.shape[1] * len(cuts), size)
            part = kernels[..., start : start + step]
            total += part.reshape(*part.shape[:2], -1) @ below
        output[sample] = total.reshape(output.shape[1:])
    return (_with_bias(output, b),)


def _conv_transpose(
    attributes: _Attributes, _opset: int, _used: int, x: Array, w: Array, b: Array | None = None
) -> tuple[Array, ...]:
    """Adds the contribution of each operand element at each kernel position."""
    groups, count = attributes.get("group", 1), x.ndim - 2
    strides = attributes.get("strides") or [1] * count
    dilations = attributes.get("dilations") or [1] * count
    extra = attributes.get("output_padding") or [0] * count
    pads = list(attributes.get("pads") or [0] * 2 * count)
    whole = [
        strides[i] * (x.shape[2 + i] - 1) + dilations[i] * (w.shape[2 + i] - 1) + 1
        for i in range(count)
    ]
    auto = attributes.get("auto_pad", "NOTSET")
    sizes = attributes.get("output_shape")
    if sizes is None and auto.startswith("SAME"):
        sizes = [x.shape[2 + i] * strides[i] for i in range(count)]
    if sizes is not None:
        for i in range(count):
            total = max(whole[i] + extra[i] - sizes[i], 0)
            less, more = total // 2, total - total // 2
            # The specification puts the larger half at the end only for SAME_UPPER.
            low = less if auto == "SAME_UPPER" else more
            pads[i], pads[count + i] = low, total - low
    elif auto == "VALID":
        pads = [0] * 2 * count
    window = _Window(
        sizes=w.shape[2:],
        strides=tuple(strides),
        dilations=tuple(dilations),
        before=(0,) * count,
        after=(0,) * count,
        outputs=x.shape[2:],
    )
    given = x.reshape(x.shape[0], groups, w.shape[0] // groups, -1)
    kernels = _by_place(w, groups)
    channels = groups * w.shape[1]
    ends = [whole[i] + extra[i] - pads[count + i] for i in range(count)]
    if sizes is not None:  # which may exceed the extent of the windows
        ends = [low + size for low, size in zip(pads[:count], sizes, strict=True)]
    room = [max(end, size) for end, size in zip(ends, whole, strict=True)]
    output = np.zeros((x.shape[0], channels, *room), x.dtype)
    for place, cut in window.places():
        part = np.swapaxes(kernels[place], 1, 2) @ given
        output[cut] += part.reshape(x.shape[0], channels, *x.shape[2:])
    inner = map(slice, pads[:count], ends)
    return (_with_bias(output[(slice(None), slice(None), *inner)], b),)


def _by_place(w: Array, groups: int) -> Array:
    """Returns kernels [*places, groups, rows, columns]: contiguous matrices, as BLAS requires."""
    kernels = w.reshape(groups, w.shape[0] // groups, w.shape[1], *w.shape[2:])
    return np.ascontiguousarray(np.moveaxis(kernels, (0, 1, 2), (-3, -2, -1)))


def _with_bias(values: Array, bias: Array | None) -> Array:
    return values if bias is None else values + bias.reshape(1, -1, *[1] * (values.ndim - 2))


def _resize(
    attributes: _Attributes, opset: int, _used: int, x: Array, *operands: Array | None
) -> tuple[Array, ...]:
    """Any version. Axes are independent; each is a product with a matrix.

    As in shape inference, float32 arithmetic determines lengths from scales. The formulas use
    integer lengths, as all runtimes do (https://github.com/onnx/onnx/issues/2462).
    """
    if opset < 11:
        attributes = {"coordinate_transformation_mode": "asymmetric", **attributes}
        attributes = {"nearest_mode": "floor", **attributes}
        operands = (None, operands[0])
    roi, scales, sizes = (*operands, None, None, None)[:3]
    axes = [axis % x.ndim for axis in attributes.get("axes", range(x.ndim))]
    lengths = [x.shape[axis] for axis in axes]
    if sizes is not None and sizes.size:
        factors = [size / length for size, length in zip(sizes.tolist(), lengths, strict=True)]
        policy = attributes.get("keep_aspect_ratio_policy", "stretch")
        outputs = sizes.tolist()
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(axes)
            outputs = [math.floor(factor * length + 0.5) for length in lengths]
    else:
        assert scales is not None
        narrow = scales.astype(np.float32)
        factors = narrow.astype(np.float64).tolist()
        outputs = [int(np.float32(n) * s) for n, s in zip(lengths, narrow, strict=True)]
    output, outside = x, np.zeros((1,) * x.ndim, bool)
    kind: Any = x.dtype if x.dtype.kind == "f" else np.float64
    for place, axis in enumerate(axes):
        length, size = lengths[place], outputs[place]
        ends = (0.0, 1.0)
        if roi is not None and roi.size:
            ends = (float(roi[place]), float(roi[len(axes) + place]))
        crops = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        if length == size and factors[place] == 1 and not crops:
            continue
        at = _coordinates(attributes, length, size, factors[place], ends)
        if crops:
            beyond = ((at < 0) | (at > length - 1)).reshape(-1, *[1] * (x.ndim - 1 - axis))
            outside = outside | beyond
        if attributes.get("mode", "nearest") == "nearest":
            output = np.take(output, _nearest(attributes, at, length), axis)
            continue
        matrix = _weights(attributes, at, length, factors[place])
        output = np.moveaxis(np.moveaxis(output, axis, -1) @ matrix.astype(kind).T, -1, axis)
    if x.dtype.kind in "iu" and output.dtype != x.dtype:  # a cubic kernel may exceed the range
        output = np.clip(output, np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    if outside.any():
        value = x.dtype.type(attributes.get("extrapolation_value", 0.0))
        output = np.where(outside, value, output)
    return (np.ascontiguousarray(output, x.dtype),)


def _coordinates(
    attributes: _Attributes, length: int, size: int, factor: float, ends: tuple[float, float]
) -> Array:
    """Returns the coordinates of a resized axis's elements in the original axis."""
    # Runtimes use float32 coordinates, and the nearest element depends on the last digit.
    kind: Any = np.float32 if attributes.get("mode", "nearest") == "nearest" else np.float64
    at: Any = np.arange(size, dtype=kind)
    return np.asarray(_moved(attributes, at, length, kind(factor), ends), kind)


def _moved(
    attributes: _Attributes, at: Any, length: int, scale: Any, ends: tuple[float, float]
) -> Any:
    """Returns coordinates by the operator's formulas, in the type of the coordinates."""
    mode = attributes.get("coordinate_transformation_mode", "half_pixel")
    size, kind = len(at), at.dtype.type
    half = kind(0.5)
    if mode == "align_corners":
        return at * kind(length - 1) / kind(max(size - 1, 1))
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_half_pixel_for_nn":
        return (at + half) / scale
    if mode == "tf_crop_and_resize":
        start, end = ends
        if size == 1:
            return kind((start + end) * (length - 1) / 2) + at
        step = (end - start) * (length - 1) / (size - 1)
        return kind(start * (length - 1)) + at * kind(step)
    if mode == "pytorch_half_pixel" and size == 1:
        return at
    centered = (at + half) / scale - half
    if mode == "half_pixel_symmetric":
        centered += kind(length / 2 * (1 - size / (float(scale) * length)))
    return centered


def _nearest(attributes: _Attributes, at: Array, length: int) -> Array:
    """Returns the indices of the elements of an axis that are nearest to these coordinates."""
    half = at.dtype.type(0.5)
    nearest = {
        "round_prefer_floor": lambda: np.ceil(at - half),
        "round_prefer_ceil": lambda: np.floor(at + half),
        "floor": lambda: np.floor(at),
        "ceil": lambda: np.ceil(at),
    }[attributes.get("nearest_mode", "round_prefer_floor")]()
    return np.asarray(np.clip(nearest.astype(np.int64), 0, length - 1))


def _weights(attributes: _Attributes, at: Array, length: int, factor: float) -> Array:
    """Returns the matrix that maps an axis of that length to these coordinates."""
    matrix = np.zeros((len(at), length))
    rows = np.arange(len(at))
    # An antialiasing filter is stretched by the factor by which an axis shrinks.
    stretch = min(factor, 1.0) if attributes.get("antialias", 0) else 1.0
    reach, kernel = (2, _cubic) if attributes["mode"] == "cubic" else (1, _linear)
    first = np.floor(at).astype(np.int64)
    span = math.ceil(reach / stretch)
    taps = first[:, None] + np.arange(1 - span, span + 1)
    a = attributes.get("cubic_coeff_a", -0.75)
    weights = kernel((taps - at[:, None]) * stretch, a)
    if attributes.get("exclude_outside", 0):
        weights = np.where((taps < 0) | (taps >= length), 0, weights)
    weights /= weights.sum(axis=1, keepdims=True)
    np.add.at(matrix, (rows[:, None], np.clip(taps, 0, length - 1)), weights)
    return matrix


def _linear(distance: Array, _: float) -> Array:
    return np.asarray(np.maximum(1 - np.abs(distance), 0))


def _cubic(distance: Array, a: float) -> Array:
    """Keys 1981, "Cubic convolution interpolation for digital image processing", equation 4."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _upsample(
    attributes: _Attributes, _opset: int, _used: int, x: Array, scales: Array | None = None
) -> tuple[Array, ...]:
    """Versions 7 and 9, replaced by `Resize` in version 10."""
    factors = np.asarray(attributes["scales"], np.float32) if scales is None else scales
    mode = attributes.get("mode", "nearest")
    return _resize({"mode": "linear" if mode == "bilinear" else mode}, 10, 1, x, factors)


def _grid_sample(
    attributes: _Attributes, _opset: int, _used: int, x: Array, grid: Array
) -> tuple[Array, ...]:
    """Versions 16 to 22; version 16 names its modes bilinear and bicubic."""
    mode = attributes.get("mode", "linear").removeprefix("bi")
    corners, padding = attributes.get("align_corners", 0), attributes.get("padding_mode", "zeros")
    batch = np.arange(x.shape[0]).reshape(-1, *[1] * (x.ndim - 2))
    taps: list[list[tuple[Array, Array]]] = []
    for axis, length in enumerate(x.shape[2:]):
        given = grid[..., x.ndim - 3 - axis]  # a grid's last axis comes first
        low, high = (0.0, length - 1.0) if corners else (-0.5, length - 0.5)
        at = low + (given + 1) / 2 * (high - low)
        if mode != "cubic":
            # For a cubic kernel, padding applies to each element below, not to the coordinate.
            at = _inside(at, low, high, length, padding)
        first = np.floor(at)
        if mode == "nearest":
            taps.append([(np.rint(at), np.ones_like(at))])
        elif mode == "linear":
            taps.append([(first + i, _linear(first + i - at, 0)) for i in (0, 1)])
        else:
            around = ((first + i, _cubic(first + i - at, -0.75)) for i in (-1, 0, 1, 2))
            taps.append([(_inside(t, low, high, length, padding), weight) for t, weight in around])
    total = np.zeros((x.shape[0], *grid.shape[1:-1], x.shape[1]), np.result_type(x, grid))
    for chosen in itertools.product(*taps):
        index: list[Any] = [batch, slice(None)]
        weight = np.ones(grid.shape[:-1], grid.dtype)
        for (at, share), length in zip(chosen, x.shape[2:], strict=True):
            within = (at >= 0) & (at <= length - 1)
            weight = weight * share * within
            index.append(np.where(within, at, 0).astype(np.int64))
        total += x[tuple(index)] * weight[..., None]
    return (np.moveaxis(total, -1, 1).astype(x.dtype),)


def _inside(at: Array, low: float, high: float, length: int, padding: str) -> Array:
    if padding == "zeros":
        return at
    if padding == "reflection":
        span = high - low
        if span <= 0:
            return np.zeros_like(at)
        away = np.abs(at - low) % (2 * span)
        at = np.where(away > span, 2 * span - away, away) + low
    return np.clip(at, 0, length - 1)


# Operator, first and last opset version, and its function.
_OPERATORS: tuple[tuple[str, int, int, _Evaluate], ...] = (
    ("AveragePool", 1, _NEWEST, _average_pool),
    ("BatchNormalization", 7, 13, _batch_normalization),
    ("Conv", 1, _NEWEST, _conv),
    ("ConvTranspose", 1, _NEWEST, _conv_transpose),
    ("Dropout", 7, 11, _dropout),
    ("GRU", 7, _NEWEST, gru),
    ("GlobalLpPool", 2, _NEWEST, _global_lp_pool),
    ("GridSample", 16, _NEWEST, _grid_sample),
    ("Hardmax", 1, 12, _hardmax),
    ("LRN", 1, _NEWEST, _lrn),
    ("LSTM", 7, _NEWEST, lstm),
    ("LogSoftmax", 1, _NEWEST, _log_softmax),
    ("LpNormalization", 1, _NEWEST, _lp_normalization),
    ("LpPool", 2, _NEWEST, _lp_pool),
    ("MaxPool", 1, _NEWEST, _max_pool),
    ("MeanVarianceNormalization", 9, _NEWEST, _mean_variance_normalization),
    ("OneHot", 9, _NEWEST, _one_hot),
    ("RNN", 7, _NEWEST, rnn),
    ("Resize", 10, _NEWEST, _resize),
    ("Softmax", 1, 12, _softmax),
    ("Upsample", 7, 9, _upsample),
)
