"""Prefill and decode with their state passed on: against the same arithmetic in a plain loop."""

import numpy as np
import pytest

from comparative_benchmark.backends.resident_programs import (
    GenerationLoop,
    GenerationPlan,
    LoopParts,
    SingleProgram,
)

VOCABULARY = 11
BATCH = 2


class _Buffer:
    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.array = np.full(shape, -77, dtype)

    def write(self, values):
        self.array[...] = values

    def copy_to(self, target):
        target[...] = self.array


class _Program:
    """A function of arrays with declared inputs and outputs, as a runtime would compile it."""

    def __init__(self, function, inputs, outputs):
        self._function, self._inputs, self._outputs = function, inputs, outputs

    def inputs(self):
        return [_Buffer(*spec) for spec in self._inputs]

    def outputs(self):
        return [_Buffer(*spec) for spec in self._outputs]

    def bind(self, inputs, outputs):
        # A runtime may write an output while it still reads its inputs.
        assert not {id(buffer) for buffer in inputs} & {id(buffer) for buffer in outputs}

        def run():
            for buffer in outputs:
                buffer.array[...] = -99
            results = self._function(*(buffer.array for buffer in inputs))
            for buffer, result in zip(outputs, results, strict=True):
                buffer.array[...] = result

        return run

    def bind_inputs(self, inputs):
        return lambda: self._function(*(buffer.array for buffer in inputs))

    def take(self, allocated, outputs):
        for result, buffer in zip(allocated, outputs, strict=True):
            buffer.array[...] = result


def _logits(value):
    return np.eye(VOCABULARY, dtype=np.float32)[value % VOCABULARY] * 3


def _prefill(ids):
    start = ids.sum(axis=1)
    token = (start % VOCABULARY).astype(np.int32)
    # A part that changes, one that does not, and one more that changes.
    return token, _logits(start), start, start * 2, start * 3


def _decode(token, position, first, fixed, second):
    value = token + position[0] + first + fixed + 5 * second
    next_token = (value % VOCABULARY).astype(np.int32)
    return next_token, _logits(value), first + token, second - position[0]


def _expected(ids, steps, first_position, forced=None):
    token, logits, first, fixed, second = _prefill(ids)
    tokens, all_logits = [token], [logits]
    for index in range(steps):
        fed = tokens[-1] if forced is None else forced[:, index]
        position = np.array([first_position + index])
        token, logits, first, second = _decode(fed, position, first, fixed, second)
        tokens.append(token)
        all_logits.append(logits)
    return np.stack(tokens, axis=1), np.stack(all_logits, axis=1)


def _loop(steps, ids):
    state = ((BATCH,), np.int64)
    token, logits = ((BATCH,), np.int32), ((BATCH, VOCABULARY), np.float32)
    prefill = _Program(_prefill, [((BATCH, 3), np.int32)], [token, logits, state, state, state])
    decode = _Program(
        _decode, [token, ((1,), np.int64), state, state, state], [token, logits, state, state]
    )
    plan = GenerationPlan(steps=steps, first_position=3, changes=(True, False, True))
    return GenerationLoop(prefill, decode, plan, [ids])


@pytest.fixture
def ids():
    return np.array([[1, 2, 3], [4, 5, 7]], np.int32)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_the_state_goes_from_step_to_step(ids, steps):
    loop = _loop(steps, ids)
    due = _expected(ids, steps, 3)
    for _ in range(2):  # a second run finds nothing of the first
        loop.run()
        for output, expected in zip(loop.fetch(), due, strict=True):
            assert output.dtype == (np.int32 if output.ndim == 2 else np.float32)
            np.testing.assert_array_equal(output, expected)


def test_forced_tokens_are_fed_and_others_chosen(ids):
    loop = _loop(4, ids)
    forced = np.array([[9, 8, 7, 6, 5], [1, 1, 2, 2, 3]], np.int32)
    outputs = loop.run_with([ids + 1, forced])
    for output, expected in zip(outputs, _expected(ids + 1, 4, 3, forced), strict=True):
        np.testing.assert_array_equal(output, expected)
    assert (outputs[0] != forced).any()
    loop.run()  # its own inputs are back
    np.testing.assert_array_equal(loop.fetch()[0], _expected(ids, 4, 3)[0])


def test_parts_give_what_the_whole_gives_and_start_again_at_the_end(ids):
    loop = _loop(3, ids)
    parts = LoopParts(loop)
    tokens, logits = _expected(ids, 3, 3)
    assert parts.steps == 3
    handle = parts.prefill()
    for index in range(4):
        parts.synchronize(handle)
        chosen, by = parts.fetch(handle)
        np.testing.assert_array_equal(chosen, tokens[:, index])
        np.testing.assert_array_equal(by, logits[:, index])
        handle = parts.decode()  # after the last one it continues from the prompt's end
    again, _ = parts.fetch(parts.prefill())
    np.testing.assert_array_equal(again, tokens[:, 0])


def test_inputs_of_another_shape_or_type_are_refused(ids):
    program = _Program(_prefill, [((BATCH, 3), np.int32)], [((BATCH,), np.int32)])
    with pytest.raises(ValueError, match="got int64"):
        SingleProgram(program, [ids.astype(np.int64)])
    with pytest.raises(ValueError, match=r"expected int32\[2, 3\], got int32\[2, 2\]"):
        SingleProgram(program, [ids[:, :2]])
    with pytest.raises(ValueError, match="number of inputs: expected 1, got 2"):
        SingleProgram(program, [ids, ids])


def test_outputs_are_copies():
    program = _Program(lambda x: [x * 2], [((2,), np.int32)], [((2,), np.int32)])
    single = SingleProgram(program, [np.array([1, 2], np.int32)])
    single.run()
    [first] = single.fetch()
    first[...] = 0
    np.testing.assert_array_equal(single.fetch()[0], [2, 4])


def test_allocated_outputs_are_those_of_their_own_run():
    program = _Program(lambda x: [x * 2], [((2,), np.int32)], [((2,), np.int32)])
    single = SingleProgram(program, [np.array([1, 2], np.int32)], allocates=True)
    first = single.run()
    single.replace_inputs([np.array([5, 5], np.int32)])
    second = single.run()
    assert [single.fetch(ran)[0].tolist() for ran in (first, second)] == [[2, 4], [10, 10]]


def test_inputs_are_replaced_where_they_are():
    program = _Program(lambda x: (x * 2,), [((3,), np.float32)], [((3,), np.float32)])
    single = SingleProgram(program, [np.ones(3, np.float32)])
    single.run()
    single.replace_inputs([np.arange(3, dtype=np.float32)])
    single.run()
    assert single.fetch()[0].tolist() == [0.0, 2.0, 4.0]
    with pytest.raises(ValueError, match=r"expected float32\[3\], got float32\[4\]"):
        single.replace_inputs([np.arange(4, dtype=np.float32)])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int8, np.bool_])
def test_a_run_that_writes_nothing_leaves_poison(dtype):
    program = _Program(lambda x: (x,), [((3,), dtype)], [((3,), dtype)])
    single = SingleProgram(program, [np.zeros(3, dtype)])
    single.run()
    single.poison_outputs()
    [left] = single.fetch()
    assert left.dtype == dtype
    assert np.isnan(left).all() if left.dtype.kind == "f" else left.all()
