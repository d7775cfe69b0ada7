"""ONNX's RNN, GRU and LSTM in NumPy, with all their attributes.

Version 7 and later: https://github.com/onnx/onnx/blob/main/docs/Operators.md. T is the number of
steps, N the batch size, D the number of directions, I and H the sizes of input and state.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from openxla.benchmark.user_models.inputs import Array

_Attributes = Mapping[str, Any]
_Function = Callable[[Array], Array]
# Maps a step's input and states to the next states; the first state is the output.
_Step = Callable[..., tuple[Array, ...]]


# Lower-case name -> function, and the defaults of its alpha and beta, if any.
_ACTIVATIONS: dict[str, tuple[Callable[..., Array], tuple[float, ...]]] = {
    "relu": (lambda x: np.maximum(x, 0), ()),
    "tanh": (np.tanh, ()),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), ()),
    "affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "leakyrelu": (lambda x, a: np.where(x < 0, a * x, x), (0.01,)),
    "thresholdedrelu": (lambda x, a: np.where(x > a, x, 0), (1.0,)),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), (1.0, 1.0)),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "elu": (lambda x, a: np.where(x < 0, a * (np.exp(x) - 1), x), (1.0,)),
    "softsign": (lambda x: x / (1 + np.abs(x)), ()),
    "softplus": (lambda x: np.logaddexp(x, 0), ()),
}


def rnn(
    attributes: _Attributes, _opset: int, used: int, *inputs: Array | None
) -> tuple[Array, ...]:
    """Returns Y and Y_h."""
    x, w, r, b, lengths, h = _padded(inputs, 6)
    biases = _biases(b, w)
    functions = _functions(attributes, ["Tanh"], len(w))

    def step_of(d: int) -> _Step:
        (f,) = functions[d]
        bias = biases[d].reshape(2, -1).sum(axis=0)
        return lambda x, h: (f(x @ w[d].T + h @ r[d].T + bias),)

    return _all_directions(attributes, x, r, lengths, [h], step_of)[:used]


def gru(
    attributes: _Attributes, _opset: int, used: int, *inputs: Array | None
) -> tuple[Array, ...]:
    """Returns Y and Y_h; gates are in the order update, reset, hidden."""
    x, w, r, b, lengths, h = _padded(inputs, 6)
    biases = _biases(b, w)
    functions = _functions(attributes, ["Sigmoid", "Tanh"], len(w))
    resets_after = attributes.get("linear_before_reset", 0)

    def step_of(d: int) -> _Step:
        f, g = functions[d]
        inputs, states = np.split(w[d], 3), np.split(r[d], 3)
        of_input, of_state = biases[d].reshape(2, 3, -1)

        def step(x: Array, h: Array) -> tuple[Array, ...]:
            from_input = [x @ part.T + bias for part, bias in zip(inputs, of_input, strict=True)]
            update, reset = (f(from_input[i] + h @ states[i].T + of_state[i]) for i in (0, 1))
            if resets_after:
                hidden = g(from_input[2] + reset * (h @ states[2].T + of_state[2]))
            else:
                hidden = g(from_input[2] + (reset * h) @ states[2].T + of_state[2])
            return ((1 - update) * hidden + update * h,)

        return step

    return _all_directions(attributes, x, r, lengths, [h], step_of)[:used]


def lstm(
    attributes: _Attributes, _opset: int, used: int, *inputs: Array | None
) -> tuple[Array, ...]:
    """Returns Y, Y_h and Y_c; gates are in the order input, output, forget, cell."""
    x, w, r, b, lengths, h, c, p = _padded(inputs, 8)
    biases = _biases(b, w)
    functions = _functions(attributes, ["Sigmoid", "Tanh", "Tanh"], len(w))
    couples = attributes.get("input_forget", 0)
    peepholes = np.zeros((len(w), 3 * r.shape[-1]), x.dtype) if p is None else p

    def step_of(d: int) -> _Step:
        f, g, last = functions[d]
        bias = biases[d].reshape(2, -1).sum(axis=0)
        to_input, to_output, to_forget = np.split(peepholes[d], 3)

        def step(x: Array, h: Array, c: Array) -> tuple[Array, ...]:
            gates = np.split(x @ w[d].T + h @ r[d].T + bias, 4, axis=-1)
            taken = f(gates[0] + to_input * c)
            forget = 1 - taken if couples else f(gates[2] + to_forget * c)
            cell = forget * c + taken * g(gates[3])
            return f(gates[1] + to_output * cell) * last(cell), cell

        return step

    return _all_directions(attributes, x, r, lengths, [h, c], step_of)[:used]


def _padded(inputs: Sequence[Array | None], count: int) -> list[Any]:
    """Returns the inputs of an operator, with None for optional ones at the end."""
    return [*inputs, *[None] * (count - len(inputs))]


def _biases(b: Array | None, w: Array) -> Array:
    return np.zeros((w.shape[0], 2 * w.shape[1]), w.dtype) if b is None else b


def _functions(
    attributes: _Attributes, usual: Sequence[str], directions: int
) -> list[list[_Function]]:
    """Returns the activations of each direction.

    Alphas and betas are listed only for functions that have them.
    """
    names = attributes.get("activations") or [*usual] * directions
    names = [name.decode() if isinstance(name, bytes) else name for name in names]
    given = [iter(attributes.get(f"activation_{which}") or ()) for which in ("alpha", "beta")]
    clip = attributes.get("clip")
    functions = [_activation(name.lower(), given, clip) for name in names]
    each = len(usual)
    return [functions[d * each : (d + 1) * each] for d in range(directions)]


def _activation(name: str, given: Sequence[Iterator[float]], clip: float | None) -> _Function:
    function, defaults = _ACTIVATIONS[name]
    numbers = [next(list_, default) for list_, default in zip(given, defaults, strict=False)]

    def apply(x: Array) -> Array:
        typed = [x.dtype.type(number) for number in numbers]
        inner = x if clip is None else np.clip(x, x.dtype.type(-clip), x.dtype.type(clip))
        return np.asarray(function(inner, *typed), x.dtype)

    return apply


def _all_directions(
    attributes: _Attributes,
    x: Array,
    r: Array,
    lengths: Array | None,
    initial: Sequence[Array | None],
    step_of: Callable[[int], _Step],
) -> tuple[Array, ...]:
    """Returns [T, D, N, H] and the last states [D, N, H]; with `layout` 1 the batch comes first."""
    batch_first = attributes.get("layout", 0) == 1
    if batch_first:
        x = np.swapaxes(x, 0, 1)
        initial = [None if state is None else np.swapaxes(state, 0, 1) for state in initial]
    steps, batch, directions = x.shape[0], x.shape[1], len(r)
    if lengths is None:
        lengths = np.full(batch, steps)
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    reversed_ = backward[attributes.get("direction", "forward")]
    outputs, states = [], []
    for d in range(directions):
        first = [
            np.zeros((batch, r.shape[-1]), x.dtype) if state is None else state[d]
            for state in initial
        ]
        tensors = _one_direction(x, lengths, first, step_of(d), reverse=reversed_[d])
        outputs.append(tensors[0])
        states.append(tensors[1:])
    y = np.stack(outputs, axis=1)
    last = [np.stack(parts) for parts in zip(*states, strict=True)]
    if batch_first:
        y = y.transpose(2, 0, 1, 3)
        last = [np.swapaxes(state, 0, 1) for state in last]
    return (y, *last)


def _one_direction(
    x: Array, lengths: Array, states: Sequence[Array], step: _Step, *, reverse: bool
) -> tuple[Array, ...]:
    """Returns [T, N, H], zero after the end of a sequence, and the final states."""
    rows = np.arange(x.shape[1])
    y = np.zeros((len(x), *states[0].shape), x.dtype)
    for t in range(len(x)):
        alive = t < lengths
        at = np.where(alive, lengths - 1 - t, t) if reverse else np.full(len(rows), t)
        following = step(x[at, rows], *states)
        states = [
            np.where(alive[:, None], new, old) for new, old in zip(following, states, strict=True)
        ]
        y[at, rows] = np.where(alive[:, None], states[0], 0)
    return (y, *states)
