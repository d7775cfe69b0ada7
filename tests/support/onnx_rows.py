"""Operators of ONNX with values in float64 from elsewhere: PyTorch, or the rule written out.

This module imports no framework. As a script, it evaluates all rows and writes the outcome
of each.
"""

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

Array = np.ndarray[Any, Any]
_random = np.random.default_rng(0)


def draw(*sizes: int) -> Array:
    """Returns numbers that float32 can hold, in float64."""
    return _random.standard_normal(sizes).astype(np.float32).astype(np.float64)


@attrs.frozen
class Row:
    """A node and its expected outputs.

    Attributes:
      kind: of the operator.
      opset: its version.
      operands: None for those that are left out.
      expected: computes the results that are compared.
      attributes: of the node.
      results: how many the node has.
    """

    kind: str
    opset: int
    operands: Sequence[Array | None]
    expected: Callable[..., Any]
    attributes: dict[str, Any] = attrs.field(factory=dict)
    results: int = 1


def _batch_norm(x: Array, scale: Array, bias: Array, mean: Array, var: Array) -> Array:
    shape = (1, -1, 1, 1) if scale.ndim == 1 else (1, *x.shape[1:])
    parts = [value.reshape(shape) for value in (scale, bias, mean, var)]
    return parts[0] * (x - parts[2]) / np.sqrt(parts[3] + np.float32(1e-5)) + parts[1]


def _softmax_2d(axis: int) -> Callable[[Array], Array]:
    def rows(x: Array) -> Array:
        flat = x.reshape(int(np.prod(x.shape[:axis])), -1)
        powers = np.exp(flat - flat.max(axis=1, keepdims=True))
        return (powers / powers.sum(axis=1, keepdims=True)).reshape(x.shape)

    return rows


def _hardmax_2d(x: Array) -> Array:
    flat = x.reshape(x.shape[0], -1)
    return (np.arange(flat.shape[1]) == flat.argmax(axis=1)[:, None]).astype(float).reshape(x.shape)


def _lrn(size: int, alpha: float = 0.5) -> Callable[[Array], Array]:
    def rule(x: Array) -> Array:
        found = np.empty_like(x)
        for c in range(x.shape[1]):
            low, high = c - (size - 1) // 2, c + -(-(size - 1) // 2)
            near = x[:, max(low, 0) : high + 1]
            found[:, c] = x[:, c] / (2 + alpha / size * (near**2).sum(axis=1)) ** 0.75
        return found

    return rule


def _torch(name: str, **keywords: Any) -> Callable[..., Any]:
    """Returns a function of `torch.nn.functional` that takes arrays."""

    def call(*operands: Array) -> Any:
        import torch

        given = [None if value is None else torch.from_numpy(value) for value in operands]
        found = getattr(torch.nn.functional, name)(*given, **keywords)
        return [v.numpy() for v in found] if isinstance(found, tuple) else found.numpy()

    return call


def _resized(**keywords: Any) -> Callable[..., Array]:
    return lambda x, *_: _torch("interpolate", **keywords)(x)


def _padded(name: str, pads: list[int], value: float, **keywords: Any) -> Callable[..., Any]:
    """Returns a function of PyTorch on an array that is padded before."""

    def call(x: Array, *others: Array) -> Any:
        return _torch(name, **keywords)(_torch("pad", pad=pads, value=value)(x), *others)

    return call


_STEPS, _BATCH, _INPUT, _STATE = 5, 3, 4, 2
# Positions of PyTorch's gates among ONNX's.
_GATES = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}


def _recurrent(
    kind: str,
    *,
    directions: int = 1,
    lengths: Sequence[int] | None = None,
    given: dict[str, Any] | None = None,
    batch_first: bool = False,
) -> Row:
    """Returns a row with the results of PyTorch's module."""
    gates = len(_GATES[kind])
    w, r = draw(directions, gates * _STATE, _INPUT), draw(directions, gates * _STATE, _STATE)
    b = draw(directions, 2 * gates * _STATE)
    x = draw(*((_BATCH, _STEPS) if batch_first else (_STEPS, _BATCH)), _INPUT)

    def sorted_gates(value: Array) -> Array:
        parts = value.reshape(gates, _STATE, *value.shape[1:])
        order = np.argsort(_GATES[kind]) if kind == "LSTM" else _GATES[kind]
        return parts[np.asarray(order)].reshape(value.shape)

    def expected(*_: Any) -> list[Array]:
        import torch

        keywords = {"bidirectional": directions == 2, "batch_first": batch_first}
        if "activations" in (given or {}):
            keywords["nonlinearity"] = "relu"
        module = getattr(torch.nn, kind)(_INPUT, _STATE, dtype=torch.float64, **keywords)
        for d, suffix in zip(range(directions), ("", "_reverse"), strict=False):
            biases = b[d].reshape(2, -1)
            for name, value in (
                *(("weight_ih", w[d]), ("weight_hh", r[d])),
                *(("bias_ih", biases[0]), ("bias_hh", biases[1])),
            ):
                getattr(module, f"{name}_l0{suffix}").data = torch.tensor(sorted_gates(value))
        taken = torch.tensor(x)
        if lengths is not None:
            taken = torch.nn.utils.rnn.pack_padded_sequence(
                taken, list(lengths), enforce_sorted=False
            )
        with torch.no_grad():
            y, state = module(taken)
        if lengths is not None:
            y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=_STEPS)
        y = y.reshape(*y.shape[:2], directions, _STATE)
        y = y if batch_first else y.transpose(1, 2)
        states = state if isinstance(state, tuple) else (state,)
        states = [s.transpose(0, 1) if batch_first else s for s in states]
        return [value.numpy() for value in (y, *states)]

    attributes = {"hidden_size": _STATE, **(given or {})}
    attributes |= {"direction": "bidirectional"} if directions == 2 else {}
    attributes |= {"layout": 1} if batch_first else {}
    sizes = None if lengths is None else np.asarray(lengths, np.int32)
    operands = [x, w, r, b, sizes]
    return Row(kind, 14, operands, expected, attributes, results=3 if kind == "LSTM" else 2)


def _peepholes() -> Row:
    w, r, p = draw(1, 8, _INPUT), draw(1, 8, _STATE), draw(1, 6)
    x = draw(_STEPS, _BATCH, _INPUT)

    def expected(*_: Any) -> Array:
        sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
        h = c = np.zeros((_BATCH, _STATE))
        found = []
        for step in x[::-1]:
            i, o, f, g = np.split(step @ w[0].T + h @ r[0].T, 4, axis=1)
            pi, po, pf = np.split(p[0], 3)
            c = sigmoid(f + pf * c) * c + sigmoid(i + pi * c) * np.tanh(g)
            h = sigmoid(o + po * c) * np.tanh(c)
            found.append(h)
        return np.stack(found[::-1])[:, None]

    attributes = {"hidden_size": _STATE, "direction": "reverse"}
    return Row("LSTM", 7, [x, w, r, None, None, None, None, p], expected, attributes)


_X = draw(2, 6, 7, 9)
_STATISTICS = [draw(6), draw(6), draw(6), np.abs(draw(6)) + 0.5]
_ELEMENTS = [draw(6, 7, 9), draw(6, 7, 9), draw(6, 7, 9), np.abs(draw(6, 7, 9)) + 0.5]
_W, _DEPTHWISE, _TRANSPOSED = draw(4, 3, 3, 3), draw(6, 1, 3, 3), draw(6, 2, 3, 3)
_GRID = np.tanh(draw(2, 5, 4, 2)) * 1.3
_SCALES = np.asarray([1, 1, 2.3, 1.7], np.float32)
_SIZES = np.asarray([2, 6, 16, 15])


def _resize(opset: int, expected: Callable[..., Any], *, sized: bool = False, **given: Any) -> Row:
    scales = [None, None, _SIZES] if sized else [np.zeros(0), _SCALES]
    return Row("Resize", opset, [_X, *(scales if opset > 10 else [_SCALES])], expected, given)


def _grid(mode: str, padding: str, *, corners: bool) -> Row:
    expected = _torch("grid_sample", mode=mode, padding_mode=padding, align_corners=corners)
    given = {"mode": mode, "padding_mode": padding, "align_corners": int(corners)}
    return Row("GridSample", 16, [_X, _GRID], expected, given)


ROWS: dict[str, Row] = {
    "BatchNormalization-7": Row("BatchNormalization", 7, [_X, *_STATISTICS], _batch_norm),
    "BatchNormalization-7-elements": Row(
        "BatchNormalization", 7, [_X, *_ELEMENTS], _batch_norm, {"spatial": 0}
    ),
    "BatchNormalization-9": Row("BatchNormalization", 9, [_X, *_STATISTICS], _batch_norm),
    "BatchNormalization-13-momentum": Row(
        "BatchNormalization", 13, [_X, *_STATISTICS], _batch_norm, {"momentum": 0.8}
    ),
    "BatchNormalization-15": Row("BatchNormalization", 15, [_X, *_STATISTICS], _batch_norm),
    "Softmax-1": Row("Softmax", 7, [_X], _softmax_2d(1)),
    "Softmax-11-axis-2": Row("Softmax", 11, [_X], _softmax_2d(2), {"axis": 2}),
    "Softmax-11-last": Row("Softmax", 11, [_X], _softmax_2d(3), {"axis": -1}),
    "Softmax-13": Row("Softmax", 13, [_X], _torch("softmax", dim=1), {"axis": 1}),
    "LogSoftmax-11": Row("LogSoftmax", 11, [_X], lambda x: np.log(_softmax_2d(1)(x))),
    "LogSoftmax-13-far": Row("LogSoftmax", 13, [_X * 1000], _torch("log_softmax", dim=-1)),
    "Hardmax-11": Row("Hardmax", 11, [_X], _hardmax_2d),
    "LRN-odd": Row("LRN", 13, [_X], _lrn(3), {"size": 3, "alpha": 0.5, "bias": 2.0}),
    "LRN-even": Row("LRN", 13, [_X], _lrn(4), {"size": 4, "alpha": 0.5, "bias": 2.0}),
    "LpNormalization-odd": Row(
        "LpNormalization", 1, [_X], lambda x: x / np.abs(x).sum(axis=-1, keepdims=True), {"p": 1}
    ),
    "GlobalLpPool": Row(
        "GlobalLpPool", 2, [_X], lambda x: np.sqrt((x**2).sum(axis=(2, 3), keepdims=True))
    ),
    "MeanVarianceNormalization": Row(
        *("MeanVarianceNormalization", 13, [_X]),
        lambda x: (
            (x - x.mean(axis=(0, 2, 3), keepdims=True))
            / (x.std(axis=(0, 2, 3), keepdims=True) + np.float64(1e-9))
        ),
    ),
    "OneHot": Row(
        *("OneHot", 11, [np.asarray([[0, 3], [-1, 1]]), np.asarray([4]), np.asarray([-1.0, 2.0])]),
        lambda ids, *_: np.moveaxis(np.where(np.eye(4)[ids] > 0, 2.0, -1.0), -1, 1),
        {"axis": 1},
    ),
    "LSTM": _recurrent("LSTM"),
    "LSTM-lengths": _recurrent("LSTM", lengths=[5, 2, 3]),
    "LSTM-both-ways-lengths": _recurrent("LSTM", directions=2, lengths=[1, 5, 4]),
    "LSTM-batch-first": _recurrent("LSTM", batch_first=True),
    "LSTM-reverse-peepholes": _peepholes(),
    "GRU": _recurrent("GRU", given={"linear_before_reset": 1}),
    "GRU-both-ways-lengths": _recurrent(
        "GRU", directions=2, lengths=[2, 5, 3], given={"linear_before_reset": 1}
    ),
    "RNN-both-ways-lengths": _recurrent("RNN", directions=2, lengths=[2, 5, 3]),
    "RNN-relu": _recurrent("RNN", directions=2, given={"activations": ["Relu", "Relu"]}),
    "Resize-10-nearest": _resize(10, _resized(scale_factor=(2.3, 1.7))),
    "Resize-11-linear-align-corners": _resize(
        *(11, _resized(size=(16, 15), mode="bilinear", align_corners=True)),
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    "Resize-13-linear": _resize(
        13, _resized(size=(16, 15), mode="bilinear"), mode="linear", sized=True
    ),
    "Resize-13-cubic": _resize(
        13, _resized(size=(16, 15), mode="bicubic"), mode="cubic", sized=True
    ),
    "Resize-18-cubic-align-corners": _resize(
        *(18, _resized(size=(16, 15), mode="bicubic", align_corners=True)),
        mode="cubic",
        coordinate_transformation_mode="align_corners",
    ),
    "Resize-19-nearest-exact": _resize(
        *(19, _resized(size=(16, 15), mode="nearest-exact")),
        mode="nearest",
        nearest_mode="round_prefer_ceil",
        sized=True,
    ),
    "Upsample-9-nearest": Row(
        "Upsample", 9, [_X, np.float32([1, 1, 2, 3])], _resized(scale_factor=(2, 3))
    ),
    "MaxPool-ceil": Row(
        *("MaxPool", 12, [_X]),
        _torch("max_pool2d", kernel_size=3, stride=2, ceil_mode=True),
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    ),
    "MaxPool-dilations-same-lower": Row(
        *("MaxPool", 12, [_X]),
        _padded("max_pool2d", [2, 2, 2, 2], -np.inf, kernel_size=3, stride=1, dilation=2),
        {"kernel_shape": [3, 3], "dilations": [2, 2], "auto_pad": "SAME_LOWER"},
    ),
    "MaxPool-same-lower": Row(
        *("MaxPool", 12, [_X]),
        _padded("max_pool2d", [1, 0, 1, 0], -np.inf, kernel_size=2, stride=1),
        {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"},
    ),
    "AveragePool-same-upper": Row(
        *("AveragePool", 11, [_X]),
        _padded("avg_pool2d", [0, 1, 0, 1], 0, kernel_size=2, stride=1),
        {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER", "count_include_pad": 1},
    ),
    "AveragePool-ceil": Row(
        *("AveragePool", 19, [_X]),
        _torch("avg_pool2d", kernel_size=3, stride=2, padding=1, ceil_mode=True),
        {
            "kernel_shape": [3, 3],
            "strides": [2, 2],
            "pads": [1, 1, 1, 1],
            "ceil_mode": 1,
            "count_include_pad": 1,
        },
    ),
    "AveragePool-without-padding": Row(
        *("AveragePool", 11, [_X]),
        _torch("avg_pool2d", kernel_size=3, padding=1, stride=1, count_include_pad=False),
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    ),
    "LpPool": Row(
        *("LpPool", 11, [_X]),
        _torch("lp_pool2d", norm_type=2, kernel_size=2, stride=1),
        {"kernel_shape": [2, 2]},
    ),
    "Conv-groups-dilations": Row(
        *("Conv", 11, [_X, _W, draw(4)]),
        _torch("conv2d", groups=2, dilation=2, padding=2, stride=2),
        {"group": 2, "dilations": [2, 2], "pads": [2, 2, 2, 2], "strides": [2, 2]},
    ),
    "Conv-same-lower": Row(
        *("Conv", 11, [_X, draw(4, 6, 2, 2)]),
        _padded("conv2d", [1, 0, 1, 0], 0),
        {"auto_pad": "SAME_LOWER"},
    ),
    "Conv-depthwise": Row("Conv", 1, [_X, _DEPTHWISE], _torch("conv2d", groups=6), {"group": 6}),
    "Conv-1d": Row("Conv", 22, [_X[:, :, 0], draw(5, 6, 3)], _torch("conv1d")),
    "Conv-3d": Row("Conv", 11, [draw(1, 2, 4, 5, 6), draw(3, 2, 2, 3, 2)], _torch("conv3d")),
    "ConvTranspose-groups": Row(
        *("ConvTranspose", 11, [_X, _TRANSPOSED, draw(6)]),
        _torch("conv_transpose2d", groups=3, stride=2, padding=1, output_padding=1),
        {"group": 3, "strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]},
    ),
    "ConvTranspose-dilations": Row(
        *("ConvTranspose", 11, [_X, _TRANSPOSED]),
        _torch("conv_transpose2d", dilation=2),
        {"dilations": [2, 2]},
    ),
    **{
        f"GridSample-16-{mode}-{padding}": _grid(mode, padding, corners=corners)
        for mode, padding, corners in (
            ("bilinear", "zeros", False),
            ("bilinear", "reflection", True),
            ("bilinear", "border", False),
            ("nearest", "border", True),
            ("bicubic", "zeros", True),
            ("bicubic", "reflection", False),
        )
    },
}


def model_of(row: Row) -> Any:
    """Returns a graph of the row's node, which takes float32; sizes and scales are constants."""
    from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

    names = ["" if value is None else f"x{i}" for i, value in enumerate(row.operands)]
    inputs = [
        helper.make_tensor_value_info(
            name,
            TensorProto.FLOAT
            if value.dtype.kind == "f"
            else helper.np_dtype_to_tensor_dtype(value.dtype),
            value.shape,
        )
        for name, value in zip(names, row.operands, strict=True)
        if value is not None and not _is_constant(row, value)
    ]
    weights = [
        numpy_helper.from_array(
            value.astype(np.float32) if value.dtype.kind == "f" else value, name
        )
        for name, value in zip(names, row.operands, strict=True)
        if value is not None and _is_constant(row, value)
    ]
    results = [f"y{i}" for i in range(row.results)]
    node = helper.make_node(row.kind, names, results, name="it", **row.attributes)
    outputs = [ValueInfoProto(name=name) for name in results]
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", row.opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _is_constant(row: Row, value: Array) -> bool:
    return row.kind in ("Resize", "Upsample") and value is not row.operands[0]


def inputs_of(row: Row) -> list[Array]:
    """Returns the inputs of the row's graph."""
    return [v for v in row.operands if v is not None and not _is_constant(row, v)]


def evaluated(row: Row) -> dict[str, Any]:
    """Returns the largest error relative to the scale, and the results of the second opinions."""
    from openxla.benchmark.user_models.onnx import in_onnx

    outputs, routes = in_onnx.run_in_float64(model_of(row), inputs_of(row))
    expected = row.expected(*row.operands)
    expected = expected if isinstance(expected, list) else [expected]
    errors = [
        float(np.abs(got - value).max() / (np.abs(value).max() or 1))
        if got.shape == value.shape
        else f"shape {got.shape}, expected {value.shape}"
        for got, value in zip(outputs, expected, strict=False)
    ]
    return {
        "errors": errors,
        "check": attrs.asdict(routes.check()),
        "agreement": agreement(row, [value.astype(np.float32) for value in expected]),
    }


def agreement(row: Row, right: Sequence[Array]) -> list[str | None]:
    """Returns why the outputs of two right kernels differ, if there are two.

    Args:
      row: what is computed.
      right: its results, rounded to float32 once.
    """
    from comparative_benchmark.analysis.verification.verification import verify
    from openxla.benchmark.user_models.onnx import in_onnx
    from openxla.benchmark.user_models.programs.program_model import in_place_of_truth, rounded

    model = model_of(row)
    inputs = [v.astype(np.float32) if v.dtype.kind == "f" else v for v in inputs_of(row)]
    own = in_onnx.run_graph(model, inputs)
    rough = in_onnx.run_graph(in_onnx.rounded_model(model), rounded(inputs))
    candidates = [list(right)]
    with contextlib.suppress(Exception):  # it lacks the operator
        candidates.append(in_onnx._by_onnxruntime(model, inputs))
    reasons = []
    for outputs in candidates:
        if [value.shape for value in outputs] != [value.shape for value in own]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            files = [
                [Path(folder, f"{kind}{i}.npy") for i in range(len(outputs))] for kind in "otr"
            ]
            for paths, values in zip(files, (outputs, in_place_of_truth(own), rough), strict=True):
                for path, value in zip(paths, values, strict=False):
                    np.save(path, value)
            reasons.append(verify(*files).reason)
    return reasons


if __name__ == "__main__":
    found = {}
    for name, row in ROWS.items():
        try:
            found[name] = evaluated(row)
        except Exception as error:
            found[name] = {
                "errors": [f"{type(error).__name__}: {error}"],
                "check": None,
                "agreement": [],
            }
    Path(sys.argv[1]).write_text(json.dumps(found))
